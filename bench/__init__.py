"""Comparisons with peers: one script a claim."""
