"""Chunking: how a volume of predictions is stored so that each rank writes files of its own; pure.

A file holds one shard, and a rank writes its own block alone. So every inner bound of the grid's blocks has to be a
bound of shards too, and shards are as large as that allows: the greatest common divisor of the inner bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from voxload.errors import UsageError
from voxload.grid import ProcessGrid

_CHUNKS = range(16, 65)
"""Extents of a chunk that others read well: smaller ones are many, larger ones are decoded for a few voxels."""
_MOST_SHARDS = 4096
"""Files of one sample beyond which a file system suffers more than the predictions are worth."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """Extents (d, h, w) of what is stored together."""

    shards: tuple[int, ...]
    """Of a file; the last along an axis may be smaller."""
    chunks: tuple[int, ...]
    """Of what is compressed together inside a file; divides `shards`."""

    @classmethod
    def of(cls, grid: ProcessGrid, shape: Sequence[int]) -> Chunking:
        """Return shards of a volume of `shape` that each lie in one block of `grid`.

        Raises UsageError when blocks are so uneven that these would be too many.
        """
        shards = tuple(math.gcd(*(cut[1:-1] or cut[1:])) for cut in grid.bounds(shape))
        count = math.prod(-(-extent // width) for extent, width in zip(shape, shards, strict=True))
        if count > max(_MOST_SHARDS, grid.group_size):
            raise UsageError(
                f"volumes of {tuple(shape)} cut by {grid.spatial}",
                found=f"blocks so uneven that ranks which share no file would write {count} of them a sample",
                expected=f"{_MOST_SHARDS} or fewer",
                remedy="choose --spatial such that it divides the extents",
            )
        return cls(shards, tuple(map(_chunk, shards)))


def _chunk(width: int) -> int:
    """Return the largest divisor of a shard's extent that makes a good chunk; all of it where there is none."""
    return max((size for size in _CHUNKS if width % size == 0), default=width)
