"""Optimisers on slow links: ranks in network namespaces, whose links take so many bits a second."""
