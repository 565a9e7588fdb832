"""Place: where the value of an operation lives."""

from __future__ import annotations

import enum


class Place(enum.Enum):
    """What each rank holds of a value."""

    BLOCK = "block"
    """Its block of a volume, (B, C, d, h, w)."""
    LAST = "block, channels last"
    """Its block of a volume, (B, d, h, w, C)."""
    PARTS = "blocks"
    """Its blocks of several volumes that are cut alike: a volume's channels in parts."""
    FLAT = "block, flattened"
    """Its block of a volume that the next layer takes as flattened features."""
    WHOLE = "whole"
    """All of it, the same on every rank of the sample group."""
    POINT = "point"
    """All of a volume of one voxel, (B, C, 1, 1, 1), which meets each block as it would the whole."""
    SHAPE = "shape"
    """The shape of a block, of which only batch and channels are the same everywhere."""


BLOCKS = frozenset({Place.BLOCK, Place.LAST, Place.PARTS, Place.FLAT})
"""Places of what is cut over the ranks."""
