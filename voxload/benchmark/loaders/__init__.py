"""Loaders to compare, one library a file; others register theirs in the entry-point group ``voxload.benchmark``."""
