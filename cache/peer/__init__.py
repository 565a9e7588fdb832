"""Peers: blocks out of the tiers of other ranks on the same line."""
