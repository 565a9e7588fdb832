"""Tiers: places near a rank that keep blocks, and the peers that lend theirs."""
