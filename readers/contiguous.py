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

    def read_all(self, wanted: Sequence[Wanted]) -> None:
        """Fill the view of each box; raises UsageError when a view does not fit its box."""
        slab = self._slab(max(wanted, key=lambda one: one.view.nbytes).box)
        origin = address(self.data)
        steps = np.array(slab.extents, np.uint64) * np.array(slab.strides, np.uint64) * np.uint64(slab.itemsize)

        def locate(places: Sequence[Place]) -> Mapped:
            starts = (np.array(places, np.uint64) * steps).sum(1, dtype=np.uint64)
            return Mapped(starts + np.uint64(origin), (self.data,))

        nothing = Pipeline((), self.data.nbytes)
        ChunkedVolume(self.subject, slab, nothing, lambda _: None, locate=locate).read_all(wanted, fill=_unreachable)

    def read(self, box: Box, view: Volume) -> None:
        """Fill `view`, in stored axis order, with `box`."""
        self.read_all([Wanted(box, view)])

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
