"""ContiguousVolume: one array that lies in memory, or in a map of its file, as a single piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from voxload.geometry import Box
from voxload.readers.chunked import ChunkedVolume, Mapped
from voxload.readers.codecs import Pipeline
from voxload.readers.parts import ChunkShape, Place, Wanted
from voxload.readers.protocol import Volume
from voxload.readers.readahead import FileRange, announce_all
from voxload.readers.scratch import Bytes, address

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
