"""Orientation: one of the 48 symmetries of the cube, on shapes, boxes, halos, arrays and vector fields.

Rules of this file: a stored array is *turned* by permuting its three spatial axes and then reversing some of them.
Indices before that are stored ones, indices after it are turned ones. Arrays are only looked at another way, never
copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError, UsageError
from voxload.geometry import Box, Halo

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Orientation:
    """A permutation of the axes (d, h, w), then reversals.

    The turned array ``A`` of a stored ``V`` is ``numpy.flip(numpy.transpose(V, axes), reversed axes)``.

    Raises UsageError where `axes` is no permutation of (0, 1, 2).

    >>> quarter = Orientation((0, 2, 1), (False, True, False))
    >>> quarter.after(quarter).after(quarter).after(quarter) == Orientation()
    True
    """

    axes: tuple[int, int, int] = (0, 1, 2)
    """Stored axis that becomes each turned axis."""
    flips: tuple[bool, bool, bool] = (False, False, False)
    """Whether each turned axis runs backwards."""

    def __post_init__(self) -> None:
        if sorted(self.axes) != [0, 1, 2] or len(self.flips) != len(self.axes):
            raise UsageError(
                "Orientation",
                found=f"axes {self.axes}, flips {self.flips}",
                expected="a permutation of (0, 1, 2), and three booleans",
            )

    @classmethod
    def all(cls) -> tuple[Orientation, ...]:
        """Return the 48 symmetries of the cube, the identity first, in an order that never changes."""
        axes, flips = itertools.permutations(range(3)), list(itertools.product((False, True), repeat=3))
        return tuple(cls((a, b, c), (p, q, r)) for a, b, c in axes for p, q, r in flips)

    @property
    def is_rotation(self) -> bool:
        """Whether it is one of the 24 that keep right hands right."""
        swaps = sum(a > b for a, b in itertools.combinations(self.axes, 2))
        return (swaps + sum(self.flips)) % 2 == 0

    def after(self, first: Orientation) -> Orientation:
        """Return the orientation that turns by `first`, and then by this one."""
        a, b, c = (first.axes[axis] for axis in self.axes)
        p, q, r = (flip != first.flips[axis] for axis, flip in zip(self.axes, self.flips, strict=True))
        return Orientation((a, b, c), (p, q, r))

    def inverse(self) -> Orientation:
        """Return the orientation that undoes this one."""
        a, b, c = (self.axes.index(axis) for axis in range(3))
        return Orientation((a, b, c), (self.flips[a], self.flips[b], self.flips[c]))

    def shape(self, stored: Sequence[T]) -> tuple[T, T, T]:
        """Return one value per turned axis from one per stored axis, such as extents."""
        d, h, w = self.axes
        return stored[d], stored[h], stored[w]

    def keeps(self, stored: Sequence[int]) -> bool:
        """Tell whether a sample of these extents has the same ones once turned."""
        return self.shape(stored) == tuple(stored)

    def box(self, box: Box, stored: Sequence[int]) -> Box:
        """Return the turned indices of a box given in stored ones, of a sample of `stored` extents.

        The box may reach outside the sample.
        """
        spans = []
        for axis, is_flipped in zip(self.axes, self.flips, strict=True):
            lo, hi = box.start[axis], box.stop[axis]
            spans.append((stored[axis] - hi, stored[axis] - lo) if is_flipped else (lo, hi))
        return Box(tuple(lo for lo, _ in spans), tuple(hi for _, hi in spans))

    def stored_box(self, box: Box, stored: Sequence[int]) -> Box:
        """Return the stored indices of a box given in turned ones, of a sample of `stored` extents."""
        return self.inverse().box(box, self.shape(stored))

    def halo(self, halo: Halo) -> Halo:
        """Return the halo around a turned block that is `halo` around the stored one."""
        low, high = self.shape(halo.low), self.shape(halo.high)
        sides = [(b, a) if is_flipped else (a, b) for a, b, is_flipped in zip(low, high, self.flips, strict=True)]
        return Halo(tuple(a for a, _ in sides), tuple(b for _, b in sides))

    def view(self, volume: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a turned view of an array whose last three axes are (d, h, w); others stay where they are."""
        lead = volume.ndim - 3
        turned = volume.transpose(*range(lead), *(lead + axis for axis in self.axes))
        d, h, w = (slice(None, None, -1 if is_flipped else 1) for is_flipped in self.flips)
        return turned[..., d, h, w]


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
