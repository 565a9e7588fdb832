"""Planes: the three central planes of a cube, read in bounded memory and thinned to what a screen can show."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.protocol import RawCube, ReadInto, volume_view
from voxload.files.pictures import draw_slices
from voxload.geometry import Box
from voxload.readers import Volume, VolumeInfo
from voxload.readers.axes import AxisOrder

SCREEN = 1024
"""Voxels along an edge of a plane that are shown at most."""
BAND_BYTES = 2**24
"""Bytes of all channels that are read at once."""


@dataclass(frozen=True, slots=True)
class Cube:
    """What is known of a cube that planes are taken of, stored or raw."""

    shape: tuple[int, int, int, int]
    """Extents (C, D, H, W)."""
    dtype: np.dtype[Any]
    """Type of the voxels as read."""
    order: AxisOrder
    """Axes in the order in which they are read fastest."""
    is_sequential: bool = False
    """Whether voxels can only be read in the order of the bytes, whole planes of the slowest axis at once."""
    spacing: tuple[float, ...] | None = None
    """Distance of neighbouring voxels along (D, H, W) in mm; None where it is not known."""

    @classmethod
    def of_source(cls, cube: RawCube) -> Cube:
        """Return what planes need to know of a raw cube."""
        return cls(cube.volume_shape, cube.dtype, cube.order, cube.is_sequential, cube.spacing)

    @classmethod
    def of_volume(cls, info: VolumeInfo, spacing: tuple[float, ...] | None = None) -> Cube:
        """Return what planes need to know of a stored volume; the file itself does not say its `spacing`."""
        return cls(info.shape, info.native_dtype, AxisOrder("CDHW"), spacing=spacing)

    @property
    def steps(self) -> tuple[int, ...]:
        """Of how many voxels along D, H and W one is shown."""
        return tuple(-(-extent // SCREEN) for extent in self.shape[1:])


def central_planes(cube: Cube, read_into: ReadInto) -> list[Volume]:
    """Return the planes of channel 0 through the centre, normal to D, H and W.

    A band of a plane is in memory at once. A cube that can only be read in order is read once from end to end, and at
    least one whole plane of its slowest axis at a time.
    """
    planes = [_Plane.blank(cube, axis) for axis in range(3)]
    boxes = (
        _slabs(cube) if cube.is_sequential else itertools.chain.from_iterable(_bands(cube, axis) for axis in (0, 1, 2))
    )
    for box in boxes:
        block = volume_view(cube.order, np.empty(cube.order.to_stored((cube.shape[0], *box.shape)), cube.dtype))
        read_into(box, block)
        for plane in planes:
            plane.take(box, block[0])
    return [plane.voxels for plane in planes]


def draw_planes(planes: Sequence[Volume], path: Path, *, cube: Cube, name: str) -> None:
    """Draw the central planes of a cube in their true proportions, where these are known.

    The title says how large a voxel is, and where not every one is shown.
    """
    steps = ",".join(map(str, cube.steps))
    thinned = f"; every {steps}-th voxel along D,H,W, which the axes count" if max(cube.steps) > 1 else ""
    voxel = f"; voxels of {millimetres(cube.spacing)}" if cube.spacing else ""
    edges = [edge * step for edge, step in zip(cube.spacing or (1.0, 1.0, 1.0), cube.steps, strict=True)]
    draw_slices(planes, path, title=f"{name}, channel 0 of {cube.shape[0]}{voxel}{thinned}", spacing=edges)


def millimetres(spacing: Sequence[float]) -> str:
    """Return the spacing along D, H and W as people write it."""
    return " x ".join(f"{edge:.6g}" for edge in spacing) + " mm"


@dataclass(frozen=True, slots=True)
class _Plane:
    """One plane on its way."""

    axis: int
    """What it is normal to."""
    index: int
    """Where it lies along that axis."""
    steps: tuple[int, ...]
    """Of how many voxels along D, H and W one is taken."""
    voxels: Volume
    """Those taken."""

    @classmethod
    def blank(cls, cube: Cube, axis: int) -> _Plane:
        """Return the central plane normal to an axis before anything of it is read."""
        spatial = cube.shape[1:]
        shown = [-(-extent // step) for extent, step in zip(spatial, cube.steps, strict=True)]
        del shown[axis]
        return cls(axis, spatial[axis] // 2, cube.steps, np.zeros(shown, cube.dtype))

    def take(self, box: Box, block: Volume) -> None:
        """Take what is in a box, whose voxels of one channel are in `block`."""
        if not box.start[self.axis] <= self.index < box.stop[self.axis]:
            return
        there: list[int | slice] = []
        here: list[slice] = []
        for axis, (lo, hi, step) in enumerate(zip(box.start, box.stop, self.steps, strict=True)):
            if axis == self.axis:
                there.append(self.index - lo)
                continue
            first = -(-lo // step)
            there.append(slice(first * step - lo, None, step))
            here.append(slice(first, -(-hi // step)))
        self.voxels[tuple(here)] = block[tuple(there)]


def _slabs(cube: Cube) -> Iterator[Box]:
    """Yield whole planes of the slowest axis, in the order of the bytes."""
    spatial = cube.shape[1:]
    slowest = next("DHW".index(axis) for axis in cube.order.axes if axis != "C")
    yield from _cut(cube, Box.whole(spatial), slowest)


def _bands(cube: Cube, axis: int) -> Iterator[Box]:
    """Yield the parts of the central plane normal to an axis."""
    start, stop = [0, 0, 0], list(cube.shape[1:])
    start[axis], stop[axis] = stop[axis] // 2, stop[axis] // 2 + 1
    along = next(number for letter in cube.order.axes if letter != "C" and (number := "DHW".index(letter)) != axis)
    yield from _cut(cube, Box(tuple(start), tuple(stop)), along)


def _cut(cube: Cube, box: Box, axis: int) -> Iterator[Box]:
    """Cut a box along an axis into parts of `BAND_BYTES`, or of one voxel's thickness where that is more."""
    lo, hi = box.start[axis], box.stop[axis]
    thin = prod(box.shape) // (hi - lo) * cube.shape[0] * cube.dtype.itemsize
    width = max(1, BAND_BYTES // thin)
    for first in range(lo, hi, width):
        start, stop = list(box.start), list(box.stop)
        start[axis], stop[axis] = first, min(first + width, hi)
        yield Box(tuple(start), tuple(stop))
