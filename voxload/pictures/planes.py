"""Planes of any array: numpy's, torch's, or one that is read when indexed, of which no more is read than is drawn."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from voxload.errors import UsageError
from voxload.files.pictures import Plane
from voxload.geometry import Box
from voxload.pictures.slices import Slices
from voxload.pictures.thin import ThinPlane, slices_of

_BAND_BYTES = 2**24
"""Bytes that are read at once."""
_NUMBERS = "biuf"
"""Kinds of types that have colours."""


@dataclass(frozen=True, slots=True)
class Array:
    """One channel of a volume."""

    source: Any
    """What is indexed."""
    channel: int | None
    """Index along its first axis; None where it has no channels."""
    extents: tuple[int, int, int]
    """(D, H, W)."""
    title: str
    """What it is, for people."""

    @classmethod
    def of(cls, given: Any, channel: int) -> Array:
        """Return what to draw of a volume, or of an item of a data set, whose first volume is taken.

        Raises UsageError for what has no volume, no voxels or other values than numbers, and for no channel of it.
        """
        source = _volume_of(given)
        shape, kind = tuple(map(int, source.shape)), _kind(source)
        place = _channel(channel, shape)
        spatial = shape[-3:]
        if min(spatial) < 1:
            raise UsageError("volume", found=f"shape {shape}", expected="one voxel or more along each axis")
        of = "" if place is None else f", channel {place} of {shape[0]}"
        return cls(source, place, (spatial[0], spatial[1], spatial[2]), f"{shape} {kind}{of}")

    def read(self) -> Slices:
        """Return the planes through the middle; reads of an array that is read when indexed these planes alone."""
        planes = [ThinPlane(axis, self.extents) for axis in range(3)]
        for plane in planes:
            for band in _bands(plane):
                plane.take(band, self.part(band))
        return slices_of(planes, self.extents)

    def part(self, box: Box) -> Plane:
        """Return voxels (d, h, w) of the channel, in memory; what is masked is NaN."""
        part = self.source[box.slices if self.channel is None else (self.channel, *box.slices)]
        if hasattr(part, "detach"):
            part = part.detach().cpu()
            part = part.float() if str(part.dtype) == "torch.bfloat16" else part
            found: Plane = part.numpy()
            return found
        if isinstance(part, np.ma.MaskedArray):
            filled: Plane = np.ma.filled(part.astype(np.float64), np.nan)
            return filled
        found = np.asarray(part)
        return found if found.dtype.kind in _NUMBERS else found.astype(np.float32)  # ml_dtypes' floats


def _bands(plane: ThinPlane) -> Iterator[Box]:
    """Yield the parts of a plane that are read at once, of whole rows."""
    box, rows = plane.box, 0 if plane.axis else 1
    most = max(_BAND_BYTES // (8 * box.size // box.shape[rows]), 1)
    for begin in range(0, box.stop[rows], most):
        start, stop = list(box.start), list(box.stop)
        start[rows], stop[rows] = begin, min(begin + most, box.stop[rows])
        yield Box(tuple(start), tuple(stop))


def _volume_of(given: Any) -> Any:
    """Return the volume of an item: itself, or the first of its parts that has three axes or more."""
    if hasattr(given, "shape") and hasattr(given, "dtype"):
        return given
    parts: Sequence[Any] = ()
    if isinstance(given, Mapping):
        parts = list(given.values())
    elif isinstance(given, tuple | list):
        parts = given
    for part in parts:
        if hasattr(part, "shape") and hasattr(part, "dtype") and len(part.shape) >= 3:
            return part
    raise UsageError(
        "volume",
        found=f"a {type(given).__name__}" if not parts else f"a {type(given).__name__} without a volume",
        expected="an array (D, H, W) or (C, D, H, W), or an item of a data set",
        remedy="index it, such as show(data[0])",
    )


def _kind(source: Any) -> str:
    """Return the name of a type that has colours; raises UsageError for another one."""
    name = str(source.dtype).removeprefix("torch.")
    kind = getattr(source.dtype, "kind", "f" if "complex" not in name else "c")
    if kind in _NUMBERS or "float" in name:
        return name
    raise UsageError("volume", found=f"type {name}", expected="whole numbers or floats", remedy="make it one of these")


def _channel(channel: int, shape: tuple[int, ...]) -> int | None:
    """Return a channel counted from 0; None of a volume without channels."""
    if len(shape) not in {3, 4}:
        raise UsageError(
            "volume", found=f"shape {shape}", expected="(D, H, W) or (C, D, H, W)", remedy="index its first axes"
        )
    count = 1 if len(shape) == 3 else shape[0]
    try:
        place = operator.index(channel)
    except TypeError:
        raise UsageError("channel", found=repr(channel), expected="a whole number") from None
    if not -count <= place < count:
        raise UsageError("channel", found=str(channel), expected=f"0 to {count - 1}")
    return None if len(shape) == 3 else place % count
