"""Blocks: how a volume is cut over the ranks of a sample group, along each spatial axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES, Box
from voxload.grid import ProcessGrid

_IMAGE = 2
"""Extents of an image."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The cut of one volume: on each axis, the rank at place i owns ``[bounds[i], bounds[i + 1])``.

    Inside a network a block may be empty: a layer that halves its volume can leave a thin block nothing to own.

    >>> Blocks(((0, 3, 6), (0, 4), (0, 4))).box((1, 0, 0)).shape
    (3, 4, 4)
    """

    bounds: tuple[tuple[int, ...], ...]
    """Per axis (d, h, w): the first voxel of every block, then the extent of the volume, in voxels."""

    def __post_init__(self) -> None:
        if len(self.bounds) != len(SPATIAL_AXES) or any(
            len(cut) < 2 or cut[0] != 0 or any(lo > hi for lo, hi in pairwise(cut)) for cut in self.bounds
        ):
            raise UsageError("blocks", found=repr(self.bounds), expected="three rising lists of bounds that start at 0")

    @classmethod
    def of(cls, grid: ProcessGrid, shape: Sequence[int]) -> Blocks:
        """Return the blocks of a volume (D, H, W) over `grid`, as the loader cuts them; an image (H, W) has one plane.

        Raises UsageError for an image over a grid that cuts d, and for what `ProcessGrid.bounds` refuses.
        """
        if len(shape) != _IMAGE:
            return cls(grid.bounds(shape))
        if grid.spatial[0] > 1:
            raise UsageError(
                f"shape {tuple(shape)}",
                found="two extents for a grid with several blocks along d",
                expected="three extents, or a grid (1, h, w) for images",
            )
        return cls(grid.bounds((1, *shape)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the whole volume, in voxels."""
        return tuple(cut[-1] for cut in self.bounds)

    def box(self, coords: Sequence[int]) -> Box:
        """Return the block of the rank at `coords` (d, h, w), in global voxel indices."""
        places = list(zip(self.bounds, coords, strict=True))
        return Box(tuple(cut[i] for cut, i in places), tuple(cut[i + 1] for cut, i in places))

    def __str__(self) -> str:
        return " ".join(
            f"{name}:{','.join(str(index) for index in cut)}"
            for name, cut in zip(SPATIAL_AXES.lower(), self.bounds, strict=True)
        )
