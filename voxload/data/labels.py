"""LabelSearch: the voxels of each class in samples' labels, found at their first use and remembered.

ClassSearch: finds the voxels that are remembered of each class, slab by slab. Each voxel has a hash of its place, and
the least ones of a class are kept. That is a fair sample, in one pass, in bounded memory, and the same in whatever
slabs the labels come.

Source: the hash is the finaliser of splitmix64, a bijection, so no two voxels tie: G. L. Steele, D. Lea, C. H. Flood,
"Fast splittable pseudorandom number generators", OOPSLA 2014. Keeping the least hashes is a bottom-k sample: E. Cohen
and H. Kaplan, "Summarizing data using bottom-k sketches", PODC 2007.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.augment.window import ClassCentres, ClassVoxels
from voxload.errors import UsageError
from voxload.geometry import Box, slabs
from voxload.readers.handles import Handles
from voxload.readers.protocol import Location, ReadCost, VolumeInfo
from voxload.units import format_bytes

_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_MOST_CLASSES = 1024
"""Labels of a sample that are searched unasked: more are numbers of objects, not classes."""
_SPAN = 2**16
"""Labels within such a range are counted, others are sorted."""
Hashes = npt.NDArray[np.uint64]


class ClassSearch:
    """Looks at a sample's labels in parts; used by one thread.

    Parameters
    ----------
    centres
        Which classes are wanted, and how many voxels of each.
    extents
        Of the volume, (D, H, W).
    key
        64 bits that tell this sample's hashes from others'.
    """

    def __init__(self, centres: ClassCentres, extents: Sequence[int], *, key: int) -> None:
        self._centres, self._extents, self._key = centres, tuple(extents), np.uint64(key)
        self._found: dict[int, _Least] = {}

    def look(self, labels: npt.NDArray[Any], box: Box) -> None:
        """Take in the labels (d, h, w) of a `box` inside the volume, each box of it once.

        Raises UsageError when there are more labels than any classes, and none were named.
        """
        _, height, width = self._extents
        rows, columns = (np.arange(lo, hi, dtype=np.uint64) for lo, hi in zip(box.start[1:], box.stop[1:], strict=True))
        plane = (rows[:, None] * np.uint64(width) + columns).reshape(-1)
        for depth, values in zip(range(box.start[0], box.stop[0]), labels, strict=True):
            self._take(values.reshape(-1), plane + np.uint64(depth * height * width))

    def result(self) -> ClassVoxels:
        """Return what is remembered."""
        return ClassVoxels(self._extents, {label: self._found[label].voxels() for label in sorted(self._found)})

    def _take(self, labels: npt.NDArray[Any], voxels: Hashes) -> None:
        """Take in the voxels of a plane."""
        present = _distinct(labels)
        wanted = present if self._centres.classes is None else [c for c in self._centres.classes if c in set(present)]
        if not wanted:
            return
        hashes = hashed(voxels, self._key)
        for label in wanted:
            least = self._found.setdefault(label, _Least(self._centres.keep))
            least.add(hashes, voxels, labels == label)
        if len(self._found) > _MOST_CLASSES:
            raise UsageError(
                f"ClassCentres of {self._centres.field!r}",
                found=f"more than {_MOST_CLASSES} labels",
                expected="a segmentation into classes",
                remedy="name the classes",
            )


class _Least:
    """The voxels of least hash of a class."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._limit = np.uint64(2**64 - 1)
        self._hashes: Hashes = np.empty(0, np.uint64)
        self._voxels: Hashes = np.empty(0, np.uint64)

    def add(self, hashes: Hashes, voxels: Hashes, of_class: npt.NDArray[np.bool_]) -> None:
        """Take in those of a plane's voxels that are of the class."""
        taken = np.flatnonzero(of_class & (hashes <= self._limit))
        if not len(taken):
            return
        self._hashes = np.concatenate([self._hashes, hashes[taken]])
        self._voxels = np.concatenate([self._voxels, voxels[taken]])
        if len(self._hashes) > self._keep:
            least = np.argpartition(self._hashes, self._keep - 1)[: self._keep]
            self._hashes, self._voxels = self._hashes[least], self._voxels[least]
            self._limit = self._hashes.max()

    def voxels(self) -> Hashes:
        """Return what is left, ascending."""
        return np.sort(self._voxels)


def hashed(voxels: Hashes, key: np.uint64) -> Hashes:
    """Return 64 bits for each voxel, different ones for all."""
    bits = voxels * _GOLDEN + key  # unsigned arithmetic wraps, as it should
    bits ^= bits >> np.uint64(30)
    bits *= _FIRST
    bits ^= bits >> np.uint64(27)
    bits *= _SECOND
    bits ^= bits >> np.uint64(31)
    return bits


def _distinct(labels: npt.NDArray[Any]) -> list[int]:
    """Return the labels of a plane, ascending."""
    if labels.dtype == np.bool_:
        labels = labels.view(np.uint8)
    least, most = int(labels.min()), int(labels.max())
    if most - least >= _SPAN:
        return [int(label) for label in np.unique(labels)]
    shifted = (
        labels.astype(np.int64) - least if labels.dtype != np.uint64 else (labels - np.uint64(least)).astype(np.int64)
    )
    return [int(label) + least for label in np.flatnonzero(np.bincount(shifted))]


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
        self._found: dict[tuple[Location, int], ClassVoxels] = {}

    def search(self, location: Location, *, key: int) -> tuple[ClassVoxels, ReadCost]:
        """Return the class voxels of a sample, and what reading its labels cost now; `key` as for `ClassSearch`.

        Raises
        ------
        UsageError
            When they are no integers of one channel, or a chunk of them exceeds the budget.
        """
        known = self._found.get((location, key))
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
        return self._found.setdefault((location, key), search.result()), total

    def _fit(self, info: VolumeInfo) -> tuple[tuple[int, ...], int]:
        """Return the extents of a chunk, and how many voxels may be looked at together."""
        subject = f"ClassCentres({self.centres.field!r}) of {info.location}"
        if info.shape[0] != 1 or info.dtype.kind not in "biu":
            found = f"{info.dtype} of {info.shape[0]} channels"
            raise UsageError(subject, found=found, expected="one channel of integer labels")
        if any(one is not None and (one.wraps or (one.scale, one.offset) != (1, 0)) for one in info.packing):
            raise UsageError(
                subject, found="labels that are scaled by CF attributes", expected="labels as they are stored"
            )
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
