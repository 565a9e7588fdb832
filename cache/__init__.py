"""Tiers that keep blocks near."""
