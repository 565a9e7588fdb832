"""Cut: a chunk of a tile, and where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from voxload.convert.tiles import Tiling
from voxload.geometry import Box


@dataclass(frozen=True, slots=True)
class Cut:
    """A chunk of a tile."""

    slices: tuple[slice, ...]
    """Its voxels in the tile."""
    index: tuple[int, int, int]
    """Its place among the tile's chunks."""
    voxels: int
    """How many it has, of one channel."""

    def place(self, first: Sequence[int]) -> tuple[int, int, int]:
        """Return its place in the volume, whose chunk at `first` is the tile's first one."""
        return first[0] + self.index[0], first[1] + self.index[1], first[2] + self.index[2]


@lru_cache(maxsize=8)
def cuts(tiling: Tiling, shape: tuple[int, int, int]) -> tuple[Cut, ...]:
    """Return the chunks of a tile in the order in which they are stored; most tiles of a volume are equal."""
    found = []
    for box in tiling.chunks(Box.whole(shape)):
        d, h, w = (lo // width for lo, width in zip(box.start, tiling.chunk, strict=True))
        found.append(Cut(box.slices, (d, h, w), box.size))
    return tuple(found)
