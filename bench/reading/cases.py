"""Cases: which boxes are read, and whether the page cache holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from voxload.geometry import Box

HALO = 2
"""Voxels of halo."""
CROPS = 32
CROP = 64
"""Extent of a crop in voxels."""
NAMES = ("octant", "halo", "crops", "cold")


@dataclass(frozen=True, slots=True)
class Case:
    """Boxes of one extent, read together."""

    name: str
    """Name on the command line and in tables."""
    boxes: tuple[Box, ...]
    """What is read."""
    is_cold: bool = False
    """Whether the pages are dropped from memory before each read."""


def octant(size: int, halo: int) -> Box:
    """Return the last eighth of a cube with the halo that lies inside it."""
    return Box((size // 2 - halo,) * 3, (size,) * 3)


def crops(size: int) -> tuple[Box, ...]:
    """Return random small boxes, the same in every run."""
    starts = np.random.default_rng(11).integers(0, size - CROP + 1, (CROPS, 3)).tolist()
    return tuple(Box.whole((CROP,) * 3).shift(start) for start in starts)


def all_cases(size: int) -> dict[str, Case]:
    """Return the cases of a sample of `size` voxels along each axis."""
    cases = (
        Case("octant", (octant(size, 0),)),
        Case("halo", (octant(size, HALO),)),
        Case("crops", crops(size)),
        Case("cold", (octant(size, 0),), is_cold=True),
    )
    return {case.name: case for case in cases}
