"""Vectors: channels that are the components of a vector along d, h and w, and turn with the sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.augment.orientation import Orientation
from voxload.errors import DataError, UsageError


def check_vector(field: str, channels: Sequence[int], *, count: int, dtype: np.dtype[Any]) -> None:
    """Refuse channels that a field does not have, and types that know no sign."""
    if max(channels) >= count:
        raise UsageError(f"vectors[{field!r}]", found=f"channels {tuple(channels)}", expected=f"channels below {count}")
    if dtype.kind not in "if":
        raise UsageError(
            f"vectors[{field!r}]", found=str(dtype), expected="a signed type: components change their sign"
        )


def turn_vector(volume: npt.NDArray[Any], channels: Sequence[int], orientation: Orientation) -> None:
    """Turn, in place, the components of a vector in a (C, d, h, w) array whose voxels were turned already.

    The component along a turned axis is that along the stored axis it came from, negative where it runs backwards.
    Takes the memory of three channels of one plane.

    Raises DataError at the least value of an integer type, which has no opposite.
    """
    order = [channels[axis] for axis in orientation.axes]
    flipped = [channel for channel, is_flipped in zip(channels, orientation.flips, strict=True) if is_flipped]
    lowest = np.iinfo(volume.dtype).min if volume.dtype.kind == "i" else None
    for depth in range(volume.shape[1]):
        plane = volume[:, depth]
        if order != list(channels):
            plane[list(channels)] = plane[order]
        for channel in flipped:
            if lowest is not None and (plane[channel] == lowest).any():
                raise DataError(
                    "vector",
                    found=f"a component of {lowest}",
                    expected=f"{lowest + 1} or more in {volume.dtype}, so that it can change its sign",
                )
            np.negative(plane[channel], out=plane[channel])
