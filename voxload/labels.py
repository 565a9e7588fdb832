"""LabelSearch: the voxels of each class in samples' labels, found at their first use and remembered."""

from __future__ import annotations

import numpy as np

from voxload.augment.centres import ClassCentres, ClassVoxels
from voxload.augment.search import ClassSearch
from voxload.errors import UsageError
from voxload.readers.handles import Handles
from voxload.readers.protocol import Location, ReadCost, VolumeInfo
from voxload.slabs import slabs
from voxload.units import format_bytes


class LabelSearch:
    """Reads each sample's labels once, whole but in slabs; every rank of a group does, and finds the same.

    Safe to use from many threads at once: two that want the same sample at its first use both read it, and agree.

    Parameters
    ----------
    centres
        What is remembered, and how many bytes of labels may be in memory for it.
    handles
        Open readers.
    """

    def __init__(self, centres: ClassCentres, handles: Handles) -> None:
        self.centres = centres
        self._handles = handles
        self._found: dict[int, ClassVoxels] = {}

    def search(self, index: int, location: Location, *, key: int) -> tuple[ClassVoxels, ReadCost]:
        """Return the class voxels of a sample, and what reading its labels cost now.

        Raises
        ------
        UsageError
            When they are no integers of one channel, or a chunk of them exceeds the budget.
        """
        known = self._found.get(index)
        if known is not None:
            return known, ReadCost()
        with self._handles.lease(location) as reader:
            info = reader.describe()
            chunk, most = self._fit(info)
            search, total = ClassSearch(self.centres, info.spatial, key=key), ReadCost()
            parts = list(slabs(info.whole, chunk, most=most))
            scratch = np.empty(max(part.size for part in parts), info.native_dtype)
            for part in parts:
                labels = scratch[: part.size].reshape(1, *part.shape)
                reader.read_into(part, labels)
                search.look(labels[0], part)
                total += reader.cost(part)
        return self._found.setdefault(index, search.result()), total

    def _fit(self, info: VolumeInfo) -> tuple[tuple[int, ...], int]:
        """Return the extents of a chunk, and how many voxels may be looked at together."""
        subject = f"ClassCentres({self.centres.field!r}) of {info.location}"
        if info.shape[0] != 1 or info.dtype.kind not in "biu":
            found = f"{info.dtype} of {info.shape[0]} channels"
            raise UsageError(subject, found=found, expected="one channel of integer labels")
        whole = info.chunks[1:] if info.chunks is not None else (1, 1, 1)
        chunk = tuple(min(width, extent) for width, extent in zip(whole, info.spatial, strict=True))
        most = self.centres.budget // info.dtype.itemsize
        if most < np.prod(chunk):
            need = int(np.prod(chunk)) * info.dtype.itemsize
            raise UsageError(
                subject,
                found=f"a budget of {format_bytes(self.centres.budget)}",
                expected=f"{format_bytes(need)} or more for one chunk",
                remedy="raise the budget, or store labels in smaller chunks",
            )
        return chunk, most
