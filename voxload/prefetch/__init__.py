"""Clairvoyant prefetching: from the order of samples to who keeps which block, and when it is fetched."""
