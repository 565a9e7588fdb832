"""ThinPlane: a plane of a volume that is read part by part, thinned to what a screen shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from voxload.files.pictures import Plane
from voxload.geometry import Box
from voxload.pictures.slices import Slices

SCREEN = 1024
"""Voxels along an edge of a plane that are shown at most."""


class ThinPlane:
    """The middle plane normal to an axis on its way; used by one thread.

    Parameters
    ----------
    axis
        0, 1 or 2, for D, H or W.
    extents
        Of the volume, (D, H, W).
    """

    def __init__(self, axis: int, extents: Sequence[int]) -> None:
        self.axis = axis
        self.places = tuple(extent // 2 for extent in extents)
        """Where the planes normal to D, H and W lie."""
        self.nan = self.inf = 0
        """Voxels that were taken, and that no plane of a lower axis has."""
        self._extents = tuple(extents)
        self._steps = [-(-extent // SCREEN) for extent in extents]
        self._plane: Plane | None = None

    @property
    def box(self) -> Box:
        """Its voxels."""
        start, stop = [0, 0, 0], list(self._extents)
        start[self.axis], stop[self.axis] = self.places[self.axis], self.places[self.axis] + 1
        return Box(tuple(start), tuple(stop))

    @property
    def voxels(self) -> Plane:
        """Those taken."""
        return np.zeros(self._shown(), np.uint8) if self._plane is None else self._plane

    def take(self, box: Box, block: Plane) -> None:
        """Take what is in a box, whose voxels (d, h, w) are in `block`; any part of the volume, each voxel once."""
        place = self.places[self.axis]
        if not box.start[self.axis] <= place < box.stop[self.axis]:
            return
        if self._plane is None:
            self._plane = np.zeros(self._shown(), np.uint8 if block.dtype.kind == "b" else block.dtype)
        there, here = [], []
        for axis in self._sides:
            lo, hi, step = box.start[axis], box.stop[axis], self._steps[axis]
            first = -(-lo // step)
            there.append(slice(first * step - lo, None, step))
            here.append(slice(first, -(-hi // step)))
        flat = block.take(place - box.start[self.axis], axis=self.axis)
        kept = self._plane[tuple(here)]
        # What is odd stays to be seen: it may have come with the part before, of which this voxel is one as well.
        self._plane[tuple(here)] = (
            np.where(np.isnan(kept), kept, flat[tuple(there)]) if _is_float(kept) else flat[tuple(there)]
        )
        if _is_float(flat):
            self._mark(box, flat)

    @property
    def _sides(self) -> tuple[int, int]:
        """The axes of its rows and of its columns."""
        rows, columns = (axis for axis in range(3) if axis != self.axis)
        return rows, columns

    def _shown(self) -> tuple[int, ...]:
        return tuple(-(-self._extents[axis] // self._steps[axis]) for axis in self._sides)

    def _mark(self, box: Box, flat: Plane) -> None:
        """Count what is no finite number, and draw it wherever one of the voxels that a drawn one stands for is odd."""
        odd = ~np.isfinite(flat)
        if self._plane is None or not odd.any():
            return
        places = [index + box.start[axis] for index, axis in zip(np.nonzero(odd), self._sides, strict=True)]
        target = tuple(index // self._steps[axis] for index, axis in zip(places, self._sides, strict=True))
        self._plane[target] = np.nan
        is_own = np.ones(len(places[0]), bool)
        for index, axis in zip(places, self._sides, strict=True):
            if axis < self.axis:
                is_own &= index != self.places[axis]
        values: Any = flat[odd][is_own]
        self.nan += int(np.isnan(values).sum())
        self.inf += int(np.isinf(values).sum())


def slices_of(planes: Sequence[ThinPlane], extents: Sequence[int]) -> Slices:
    """Return the three planes, normal to D, H and W, as a picture shows them."""
    d, h, w = extents
    at_d, at_h, at_w = planes[0].places
    odd = (sum(plane.nan for plane in planes), sum(plane.inf for plane in planes))
    return Slices(tuple(plane.voxels for plane in planes), (d, h, w), (at_d, at_h, at_w), odd)


def _is_float(plane: Plane) -> bool:
    return plane.dtype.kind not in "iub"
