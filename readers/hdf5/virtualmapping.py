"""Virtual mapping: which boxes of a virtual HDF5 dataset are which boxes of other datasets; reads no voxel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.protocol import Missing

REMEDY = "read its source files, or copy it with h5repack first"
"""What to do about a virtual or external dataset that cannot be read."""
_UNLIMITED = 2**63
"""Counts from here on stand for "as many as there are"."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """One box of a virtual dataset and where its voxels are."""

    box: Box
    """In the virtual dataset, in its axis order."""
    file: str
    """Name of the source file as it was recorded; "." is the file itself."""
    dataset: str
    """Name of the source dataset."""
    source: Box | None
    """In the source dataset; None means all of it."""

    def checked(self, shape: tuple[int, ...]) -> Mapped:
        """Return it with its source box, of a source dataset of extents `shape`.

        Raises
        ------
        DataError
            When the box does not lie in the source, or has other extents.
        """
        whole = Box.whole(shape)
        source = self.source or whole
        if len(source.shape) != len(shape) or not whole.contains(source):
            raise DataError(
                found=f"extents {shape}",
                expected=f"room for the mapped box {source}",
                remedy="restore the source, or write the virtual dataset anew",
            )
        if _wide(source) != _wide(self.box):
            raise DataError(
                found=f"a source box of {source.shape}",
                expected=f"the extents {self.box.shape} of its place in the virtual dataset",
                remedy="restore the source, or write the virtual dataset anew",
            )
        return Mapped(self.box, self.file, self.dataset, source)

    def within_source(self, part: Box) -> Box:
        """Return where `part`, which lies in `box`, is in the source; only of what `checked` returned."""
        if self.source is None:
            raise UsageError("Mapped.within_source", found="a source of unknown extents", expected="a checked one")
        starts = [lo - first for lo, first, n in zip(part.start, self.box.start, self.box.shape, strict=True) if n > 1]
        widths = [width for width, n in zip(part.shape, self.box.shape, strict=True) if n > 1]
        pairs = iter(zip(starts, widths, strict=True))
        # Axes of extent 1 may stand anywhere, as where images become a volume's slices; the others keep their order.
        inner = [next(pairs) if n > 1 else (0, 1) for n in self.source.shape]
        start = tuple(first + lo for first, (lo, _) in zip(self.source.start, inner, strict=True))
        return Box(start, tuple(lo + width for lo, (_, width) in zip(start, inner, strict=True)))


def _wide(box: Box) -> list[int]:
    return [width for width in box.shape if width != 1]


def read_mapping(dataset: h5py.Dataset) -> list[Mapped]:
    """Return the boxes of a virtual dataset.

    Raises
    ------
    UsageError
        For mappings that are no boxes, have no fixed extents, or whose sources' names are patterns.
    """
    found = []
    for entry in dataset.virtual_sources():
        name = f"{entry.file_name}:{entry.dset_name}"
        if "%" in name:
            raise UsageError(found=f"virtual storage with a pattern of sources, {name}", remedy=REMEDY)
        box = _box_of(entry.vspace, f"the mapping of {name}")
        source = _box_of(entry.src_space, f"the mapping of {name}")
        whole = Box.whole(dataset.shape)
        if box is not None and not whole.contains(box):
            raise UsageError(
                found=f"virtual storage with a mapping of {name} to {box}, beyond {dataset.shape}", remedy=REMEDY
            )
        found.append(Mapped(box or whole, entry.file_name, entry.dset_name, source))
    return found


def _box_of(space: Any, subject: str) -> Box | None:
    """Return the box that a dataspace selects; None means all."""
    kind = space.get_select_type()
    if kind == h5py.h5s.SEL_ALL:
        return None
    if kind != h5py.h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        raise UsageError(subject, found="virtual storage whose mappings are no boxes", remedy=REMEDY)
    axes = list(zip(*space.get_regular_hyperslab(), strict=True))
    if any(max(count, block) >= _UNLIMITED for _, _, count, block in axes):
        raise UsageError(subject, found="virtual storage with a mapping without fixed extents", remedy=REMEDY)
    if any(count != 1 and stride != block for _, stride, count, block in axes):
        raise UsageError(subject, found="virtual storage with a mapping of every n-th voxel", remedy=REMEDY)
    start = tuple(int(first) for first, _, _, _ in axes)
    return Box(start, tuple(int(first + count * block) for first, _, count, block in axes))


class BoxIndex:
    """Finds which of many boxes meet one; immutable.

    Parameters
    ----------
    boxes
        At least one, all of as many axes.
    """

    def __init__(self, boxes: Sequence[Box]) -> None:
        self._start = np.array([box.start for box in boxes], np.int64)
        self._stop = np.array([box.stop for box in boxes], np.int64)

    def meeting(self, box: Box) -> list[int]:
        """Return the numbers of the boxes that share a voxel with `box`, in their order."""
        near = (self._start < np.array(box.stop)) & (self._stop > np.array(box.start))
        return [int(number) for number in np.flatnonzero(near.all(axis=1))]

    def first_overlap(self) -> tuple[int, int] | None:
        """Return the numbers of two boxes that share a voxel, or None.

        A sweep along the axis with the most borders compares each box with those that reach beyond its beginning.
        """
        axis = int(np.argmax([len(np.unique(column)) for column in self._start.T]))
        active = np.empty(0, np.intp)
        for number in np.argsort(self._start[:, axis], kind="stable"):
            active = active[self._stop[active, axis] > self._start[number, axis]]
            hit = active[self._meets(active, int(number))]
            if len(hit):
                return int(hit[0]), int(number)
            active = np.append(active, number)
        return None

    def _meets(self, others: npt.NDArray[np.intp], number: int) -> npt.NDArray[np.bool_]:
        below = self._start[others] < self._stop[number]
        above = self._stop[others] > self._start[number]
        return np.asarray((below & above).all(axis=1))


def uncovered(boxes: Sequence[Box], shape: tuple[int, ...]) -> int:
    """Return how many voxels of `shape` lie in none of `boxes`, which lie in it and are disjoint."""
    return prod(shape) - sum(box.size for box in boxes)


def check_cover(mapping: list[Mapped], shape: tuple[int, ...], missing: Missing) -> bool:
    """Refuse voxels with two sources, and unless they are filled those with none; tell whether all have one."""
    boxes = [mapped.box for mapped in mapping]
    overlap = BoxIndex(boxes).first_overlap() if boxes else None
    if overlap is not None:
        first, second = (f"{mapping[n].file}:{mapping[n].dataset} to {mapping[n].box}" for n in overlap)
        raise UsageError(found=f"virtual storage that maps both {first} and {second}", remedy=REMEDY)
    holes = uncovered(boxes, shape)
    if holes and missing is Missing.ERROR:
        raise DataError(
            found=f"virtual storage with {holes} voxels that no source is mapped to",
            expected="a source of every voxel",
            remedy='write the virtual dataset anew, or read the volume with missing="fill" (convert --missing fill)',
        )
    return not holes
