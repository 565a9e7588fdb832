"""Contiguous storage: boxes of an array that lies in one piece, in memory or in a file that must not be mapped.

Spans: boxes of an array that lies in a file in one piece, read by few long requests where it must not be mapped. A
box is many short rows. Each as a request of its own would cost a round trip; so rows that lie close together are read
as one span, with what lies between them, which is left out when they are pasted (data sieving: Thakur, Gropp, Lusk,
"Data Sieving and Collective I/O in ROMIO", 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.chunks.chunked import ChunkedVolume, Mapped
from voxload.readers.decode.codecs import Pipeline
from voxload.readers.pasting.kernels import FIRST, STOP
from voxload.readers.pasting.pasteplan import ChunkShape, Parts, Place, Wanted, plan_parts
from voxload.readers.pasting.paster import Paster, paster
from voxload.readers.protocol import Volume
from voxload.readers.remote.coalesce import Range
from voxload.readers.scratch import Bytes, address
from voxload.readers.storage.readahead import FileRange, announce_all
from voxload.readers.team import team

_SLAB_BYTES = 2**20
"""A read is parted among threads into slabs of about this size."""


@dataclass(frozen=True, slots=True)
class ContiguousVolume:
    """Reads boxes of an array whose elements all lie in `data`; threads share a read slab by slab."""

    subject: str
    """What error messages are about."""
    shape: ChunkShape
    """How the elements lie; its extents are those of the whole array."""
    data: Bytes
    """The elements, and nothing else."""
    stored: FileRange | None = None
    """Where they lie in the file that is mapped; what is not in memory is announced before it is touched."""

    def read_all(self, wanted: Sequence[Wanted]) -> None:
        """Fill the view of each box; raises UsageError when a view does not fit its box."""
        slab = self._slab(max(wanted, key=lambda one: one.view.nbytes).box)
        origin = address(self.data)
        steps = np.array(slab.extents, np.uint64) * np.array(slab.strides, np.uint64) * np.uint64(slab.itemsize)

        def locate(places: Sequence[Place]) -> Mapped:
            starts = (np.array(places, np.uint64) * steps).sum(1, dtype=np.uint64)
            return Mapped(starts + np.uint64(origin), (self.data,))

        for one in wanted:
            self._announce(one.box)
        nothing = Pipeline((), self.data.nbytes)
        ChunkedVolume(self.subject, slab, nothing, lambda _: None, locate=locate).read_all(wanted, fill=_unreachable)

    def read(self, box: Box, view: Volume) -> None:
        """Fill `view`, in stored axis order, with `box`."""
        self.read_all([Wanted(box, view)])

    def _announce(self, box: Box) -> None:
        """Announce a box's rows, all of one index of the slowest axis at once."""
        if self.stored is None:
            return
        stored, steps = self.stored, [stride * self.shape.itemsize for stride in self.shape.strides]
        slowest = max(range(len(steps)), key=lambda axis: steps[axis])
        first = sum(lo * step for axis, (lo, step) in enumerate(zip(box.start, steps, strict=True)) if axis != slowest)
        last = sum(
            (hi - 1) * step for axis, (hi, step) in enumerate(zip(box.stop, steps, strict=True)) if axis != slowest
        )
        length = last - first + self.shape.itemsize

        def where(place: Place) -> FileRange:
            return FileRange(stored.file, stored.offset + first + place[0] * steps[slowest], length)

        announce_all([(index,) for index in range(box.start[slowest], box.stop[slowest])], where)

    def _slab(self, box: Box) -> ChunkShape:
        """Return the array cut along its slowest axis along which `box` is more than one element."""
        shape = self.shape
        axes = sorted(range(len(shape.extents)), key=lambda axis: -shape.strides[axis])
        axis = next((axis for axis in axes if box.shape[axis] > 1), axes[0])
        slabs = max(1, min(box.size * shape.itemsize // _SLAB_BYTES, box.shape[axis]))
        extents = list(shape.extents)
        extents[axis] = max(1, box.shape[axis] // slabs)
        return replace(shape, extents=tuple(extents))


def _unreachable(view: Volume) -> None:
    raise AssertionError(f"contiguous data have no holes, yet {view.shape} was to be filled")


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


class Readable(Protocol):
    """A file, or an object; see `FileBytes`."""

    def read(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset`, valid until this thread reads again."""
        ...


Take = Callable[[int], Bytes]
"""Returns the bytes of a span, by its number, once; called from many threads at once."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A span of a read, and where its rows go."""

    tile: ChunkShape
    parts: Parts
    number: int
    paster: Paster

    def range(self, offset: int) -> Range:
        """Return its place in a file whose array begins at `offset`."""
        corner = offset
        for index, extent, stride in zip(
            self.parts.places[self.number], self.tile.extents, self.tile.strides, strict=True
        ):
            corner += index * extent * stride * self.tile.itemsize
        first, stop = self.parts.spans[self.number]
        return corner + first, corner + stop

    def paste(self, data: Bytes) -> None:
        """Paste its rows from its bytes."""
        bounds, first = self.parts.bounds, self.parts.spans[self.number][0]
        rows = self.parts.table[bounds[self.number] : bounds[self.number + 1]].copy()
        shift = np.uint64((address(data) - first) % 2**64)
        rows[:, FIRST] += shift
        rows[:, STOP] += shift
        self.paster.paste_mapped(rows, (0, len(rows)))


@dataclass(frozen=True, slots=True)
class SpanVolume:
    """Reads boxes of an array whose elements lie in `file` in one piece, from `offset` on; threads share the spans."""

    subject: str
    """What error messages are about."""
    shape: ChunkShape
    """How the elements lie; its extents are those of the whole array."""
    file: Readable
    """The file, which is not mapped."""
    offset: int
    """Its first byte that belongs to the array."""
    expect: Callable[[Sequence[Range]], AbstractContextManager[Take]] | None = None
    """Told all spans of a read, in the order of their use; gives what hands out their bytes, and is left when the read
    is over. For files of which many ranges are better asked for at once."""

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
            spans += [_Span(tile, parts, number, target) for number in range(len(parts.places))]
        ranges = [span.range(self.offset) for span in spans]
        with (self.expect or self._one_by_one)(ranges) as take:
            team().run(partial(self._paste, spans, take), range(len(spans)))

    def read(self, box: Box, view: Volume) -> None:
        """Fill `view`, in stored axis order, with `box`."""
        self.read_all([Wanted(box, view)])

    @contextmanager
    def _one_by_one(self, ranges: Sequence[Range]) -> Iterator[Take]:
        """Read each span when it is wanted."""
        yield lambda number: self.file.read(ranges[number][0], ranges[number][1] - ranges[number][0])

    def _paste(self, spans: Sequence[_Span], take: Take, number: int) -> None:
        """Read one span and paste its rows."""
        try:
            data = take(number)
        except DataError as error:
            raise error.within(self.subject, remedy="copy or convert the file again") from error
        spans[number].paste(data)
