"""Planes: the three central planes of a cube, read in bounded memory and thinned to what a screen can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.protocol import RawCube, ReadInto, volume_view
from voxload.files.pictures import write_png
from voxload.geometry import Box
from voxload.pictures.slices import NOTHING_OVER, Overlay, Slices, draw_slices
from voxload.pictures.thin import ThinPlane, slices_of
from voxload.readers import VolumeInfo
from voxload.readers.axes import AxisOrder

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


def central_planes(cube: Cube, read_into: ReadInto) -> Slices:
    """Return the planes of channel 0 through the centre, normal to D, H and W.

    A band of a plane is in memory at once. A cube that can only be read in order is read once from end to end, and at
    least one whole plane of its slowest axis at a time.
    """
    spatial = cube.shape[1:]
    planes = [ThinPlane(axis, spatial) for axis in range(3)]
    boxes = (
        (((box, planes) for box in _slabs(cube)))
        if cube.is_sequential
        else ((box, [plane]) for plane in planes for box in _bands(cube, plane))
    )
    for box, wanted in boxes:
        block = volume_view(cube.order, np.empty(cube.order.to_stored((cube.shape[0], *box.shape)), cube.dtype))
        read_into(box, block)
        for plane in wanted:
            plane.take(box, block[0])
    return slices_of(planes, spatial)


def draw_planes(slices: Slices, path: Path, *, cube: Cube, name: str, overlay: Overlay = NOTHING_OVER) -> None:
    """Draw the central planes of a cube in their true proportions, where these are known, and what cuts them."""
    title = f"{name}, {cube.dtype}, channel 0 of {cube.shape[0]}"
    write_png(draw_slices(slices, title=title, spacing=cube.spacing, unit="mm", overlay=overlay), path)


def millimetres(spacing: Sequence[float]) -> str:
    """Return the spacing along D, H and W as people write it."""
    return " x ".join(f"{edge:.6g}" for edge in spacing) + " mm"


def _slabs(cube: Cube) -> Iterator[Box]:
    """Yield whole planes of the slowest axis, in the order of the bytes."""
    spatial = cube.shape[1:]
    slowest = next("DHW".index(axis) for axis in cube.order.axes if axis != "C")
    yield from _cut(cube, Box.whole(spatial), slowest)


def _bands(cube: Cube, plane: ThinPlane) -> Iterator[Box]:
    """Yield the parts of a plane."""
    numbers = ("DHW".index(letter) for letter in cube.order.axes if letter != "C")
    along = next(number for number in numbers if number != plane.axis)
    yield from _cut(cube, plane.box, along)


def _cut(cube: Cube, box: Box, axis: int) -> Iterator[Box]:
    """Cut a box along an axis into parts of `BAND_BYTES`, or of one voxel's thickness where that is more."""
    lo, hi = box.start[axis], box.stop[axis]
    thin = prod(box.shape) // (hi - lo) * cube.shape[0] * cube.dtype.itemsize
    width = max(1, BAND_BYTES // thin)
    for first in range(lo, hi, width):
        start, stop = list(box.start), list(box.stop)
        start[axis], stop[axis] = first, min(first + width, hi)
        yield Box(tuple(start), tuple(stop))
