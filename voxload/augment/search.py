"""ClassSearch: finds the voxels that are remembered of each class, slab by slab.

Each voxel has a hash of its place, and the least ones of a class are kept. That is a fair sample, in one pass, in
bounded memory, and the same in whatever slabs the labels come.

Source: the hash is the finaliser of splitmix64, a bijection, so no two voxels tie: G. L. Steele, D. Lea, C. H. Flood,
"Fast splittable pseudorandom number generators", OOPSLA 2014. Keeping the least hashes is a bottom-k sample: E. Cohen
and H. Kaplan, "Summarizing data using bottom-k sketches", PODC 2007.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.augment.centres import ClassCentres, ClassVoxels
from voxload.errors import UsageError
from voxload.geometry import Box

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
