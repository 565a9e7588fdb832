"""Caching: what `cache=` is made of, from this rank's blocks to tiers, peers and plans.

In come a sampler's orders and a Cache; out come batches, from wherever they are nearest. Others import prefetcher.
Read it first, then tiers and prefetched.
"""
