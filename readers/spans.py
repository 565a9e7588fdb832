"""Spans: boxes of an array that lies in a file in one piece, read by few long requests where it must not be mapped.

A box is many short rows. Each as a request of its own would cost a round trip; so rows that lie close together are
read as one span, with what lies between them, which is left out when they are pasted (data sieving: Thakur, Gropp,
Lusk, "Data Sieving and Collective I/O in ROMIO", 1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers import kernels
from voxload.readers.file import FileBytes
from voxload.readers.parts import ChunkShape, Parts, Wanted, plan_parts
from voxload.readers.paste import Paster, paster
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address
from voxload.readers.team import team

GAP_BYTES = 2**16
"""Unwanted bytes that are read along to spare a request: at 1 GB/s they take 65 microseconds, less than a round trip to
a file system over a network. A larger gap would spend the bandwidth of many readers to spare the time of one."""
SPAN_BYTES = 2**21
"""Longest span, and so each thread's scratch, unless one element is longer; a few stripes of a parallel file system."""


def sieve(shape: ChunkShape, box: Box, *, gap: int = GAP_BYTES, limit: int = SPAN_BYTES) -> ChunkShape:
    """Cut an array into tiles of which each holds one span of `box`; pure.

    From the fastest axis on, whole axes are taken into a tile while the unwanted bytes between one index and the next
    are at most `gap`, and the bytes from a tile's first wanted one to its last are at most `limit`. Where that is
    exceeded, a tile has as many indices as the limit allows; along slower axes it has one.

    >>> plane = ChunkShape.of((512, 512, 512), np.dtype("<i2"))
    >>> sieve(plane, Box((0, 0, 0), (64, 64, 64)), gap=2**12, limit=2**20).extents
    (1, 512, 512)
    """
    extents = [1] * len(shape.extents)
    length = shape.itemsize
    for axis in sorted(range(len(extents)), key=lambda axis: (shape.strides[axis], -axis)):
        step, count = shape.strides[axis] * shape.itemsize, box.shape[axis]
        if count > 1 and step - length > gap:
            break
        whole = (count - 1) * step + length
        if whole > limit:
            extents[axis] = min(shape.extents[axis], max(1, (limit - length) // step + 1))
            break
        extents[axis], length = shape.extents[axis], whole
    return replace(shape, extents=tuple(extents))


@dataclass(frozen=True, slots=True)
class SpanVolume:
    """Reads boxes of an array whose elements lie in `file` in one piece, from `offset` on; threads share the spans."""

    subject: str
    """What error messages are about."""
    shape: ChunkShape
    """How the elements lie; its extents are those of the whole array."""
    file: FileBytes
    """The file, which is not mapped."""
    offset: int
    """Its first byte that belongs to the array."""

    def read_all(self, wanted: Sequence[Wanted]) -> None:
        """Fill the view of each box.

        Raises
        ------
        DataError
            When the file ends before a span does, be it cut short while it is read.
        UsageError
            When a view does not fit its box.
        """
        spans = []
        for one in wanted:
            tile = sieve(self.shape, one.box)
            parts, target = plan_parts(tile, [one]), paster(tile, one.view.dtype)
            spans += [(tile, parts, number, target) for number in range(len(parts.places))]
        team().run(self._paste, spans)

    def read(self, box: Box, view: Volume) -> None:
        """Fill `view`, in stored axis order, with `box`."""
        self.read_all([Wanted(box, view)])

    def _paste(self, span: tuple[ChunkShape, Parts, int, Paster]) -> None:
        """Read one span and paste its rows."""
        tile, parts, number, target = span
        corner = self.offset
        for index, extent, stride in zip(parts.places[number], tile.extents, tile.strides, strict=True):
            corner += index * extent * stride * tile.itemsize
        first, stop = parts.spans[number]
        try:
            data = self.file.read(corner + first, stop - first)
        except DataError as error:
            raise error.within(self.subject, remedy="copy or convert the file again") from error
        rows = parts.table[parts.bounds[number] : parts.bounds[number + 1]].copy()
        shift = np.uint64((address(data) - first) % 2**64)
        rows[:, kernels.FIRST] += shift
        rows[:, kernels.STOP] += shift
        target.paste_mapped(rows, (0, len(rows)))
