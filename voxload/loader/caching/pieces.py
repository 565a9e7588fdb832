"""Pieces: what a tier keeps of volumes of which other boxes are wanted in every epoch; pure.

A random patch, or a turned and moved block, is never the same twice, but the chunks that it touches are. Volumes are
parted into pieces of whole chunks, each piece is kept by itself, and a box is pasted from those that it touches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from voxload.geometry import Box, chunks_touched
from voxload.prefetch.line import Ints

_LEAST, _MOST = 2**19, 2**23
"""Bytes that small chunks are joined to: a copy of less takes no longer than to plan it, and what a box touches of more
is mostly not its own. Chunks that are larger stay whole, for a part of one costs all of it."""
_SHARE = 8
"""Least number of pieces that a box is to be of, so that what it touches is not many times its size."""
_ROW = 256
"""Voxels of a row that one request brings where storage has no chunks."""


@dataclass(frozen=True, slots=True)
class PieceGrid:
    """The pieces of one volume, numbered in C order; those at its end may be smaller.

    >>> grid = PieceGrid((10, 4, 4), (4, 4, 4))
    >>> grid.count, str(grid.box(2)), list(grid.touched(Box((3, 0, 0), (5, 4, 4))))
    (3, '[8:10, 0:4, 0:4]', [0, 1])
    """

    extents: tuple[int, int, int]
    """Of the volume, (D, H, W)."""
    piece: tuple[int, int, int]
    """Of a piece."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Pieces along (d, h, w)."""
        return tuple(-(-extent // width) for extent, width in zip(self.extents, self.piece, strict=True))

    @property
    def count(self) -> int:
        """All pieces."""
        return prod(self.counts)

    def box(self, number: int) -> Box:
        """Return the voxels of a piece."""
        _, rows, columns = self.counts
        place = number // (rows * columns), number // columns % rows, number % columns
        start = tuple(at * width for at, width in zip(place, self.piece, strict=True))
        ends = zip(start, self.piece, self.extents, strict=True)
        return Box(start, tuple(min(first + width, extent) for first, width, extent in ends))

    def touched(self, box: Box) -> Iterator[int]:
        """Yield the numbers of the pieces that hold voxels of a box inside the volume."""
        _, rows, columns = self.counts
        found = chunks_touched(box, self.piece)
        for d in range(found.start[0], found.stop[0]):
            for h in range(found.start[1], found.stop[1]):
                first = (d * rows + h) * columns
                yield from range(first + found.start[2], first + found.stop[2])

    def voxels(self) -> Ints:
        """Return the number of voxels of every piece."""
        along = []
        for extent, width, count in zip(self.extents, self.piece, self.counts, strict=True):
            along.append(np.minimum(np.arange(1, count + 1) * width, extent) - np.arange(count) * width)
        d, h, w = along
        return (d[:, None, None] * h[:, None] * w).reshape(-1).astype(np.int64)


def piece_shape(
    extents: Sequence[int], chunk: Sequence[int] | None, *, wanted: int, voxel: int
) -> tuple[int, int, int]:
    """Return the extents of the pieces of a volume.

    Parameters
    ----------
    extents
        Of the volume, (D, H, W).
    chunk
        Of its chunks; None where voxels lie one behind the other.
    wanted
        Voxels of a box that is read of it.
    voxel
        Bytes of a voxel, of all its channels.

    >>> piece_shape((512, 512, 512), (16, 16, 16), wanted=64**3, voxel=2)
    (64, 64, 64)
    >>> piece_shape((512, 512, 512), (128, 128, 128), wanted=64**3, voxel=2)
    (128, 128, 128)
    """
    given = (1, 1, _ROW) if chunk is None else chunk
    widths = [min(width, extent) for width, extent in zip(given, extents, strict=True)]
    target = min(max(wanted * voxel // _SHARE, _LEAST), _MOST)
    while True:
        grown = [axis for axis in range(len(widths)) if widths[axis] < extents[axis]]
        if not grown or 2 * prod(widths) * voxel > target:
            d, h, w = widths
            return d, h, w
        axis = min(grown, key=lambda one: widths[one])
        widths[axis] = min(2 * widths[axis], extents[axis])


def most_touched(box: Sequence[int], grid: PieceGrid) -> int:
    """Return the most pieces of a volume that a box of such extents can touch, wherever it lies, beyond its ends too.

    >>> most_touched((64, 64, 8), PieceGrid((512, 512, 512), (64, 64, 64)))
    8
    """
    found = 1
    for extent, width, whole, count in zip(box, grid.piece, grid.extents, grid.counts, strict=True):
        # Beyond the end of a periodic volume comes its begin, in the middle of a piece's width.
        found *= min(-(-(extent - 1) // width) + 1 + (whole % width > 0), count)
    return found
