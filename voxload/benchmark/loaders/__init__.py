"""Loaders to compare, one library a file; others register theirs in the entry-point group ``voxload.benchmark``.

In comes a `Task`, out go batches of one rank's blocks. Read protocol.py first, then registry; others import protocol,
registry, own, volumes, and dlio the order of delivery.
"""
