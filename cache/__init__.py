"""The place of tiers that keep blocks near; this version has none."""
