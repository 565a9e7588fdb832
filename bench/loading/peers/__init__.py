"""Contenders, one library a file: each gives `build(job)`, which the process of one run calls."""
