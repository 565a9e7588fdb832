"""Reach: the contract of a layer's arithmetic along one axis, and how few ranks its outputs go to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from voxload.errors import UsageError

Interval = tuple[int, int]
"""Half-open range of positions; it may leave the volume on either side."""


class Reach(Protocol):
    """Which inputs an output reads along one axis; pure integers, the same on every rank."""

    def outputs(self, extent: int) -> int:
        """Return the number of outputs over an axis of `extent` voxels; 0 where the layer does not fit."""

    def owners(self, bounds: tuple[int, ...]) -> tuple[int, ...]:
        """Return bounds of the outputs that keep most of what each reads on the rank that has it."""

    def needs(self, outputs: tuple[int, ...], extent: int) -> tuple[Interval, ...]:
        """Return, per rank, the inputs that its `outputs` read; an empty interval where it owns none."""

    def describe(self) -> str:
        """Return the settings, for the error that says that the layer does not fit."""


def even_bounds(extent: int, ranks: int, *, parts: int | None = None) -> tuple[int, ...]:
    """Return bounds that give `extent` voxels to `parts` of `ranks` ranks, evenly; the others get nothing.

    >>> even_bounds(6, 4), even_bounds(6, 4, parts=2)
    ((0, 1, 3, 4, 6), (0, 3, 3, 6, 6))
    """
    count = ranks if parts is None else parts
    # Those with a part are spread over the line, so that its ends stay near to what they held before.
    cuts = [index * extent // count for index in range(count + 1)]
    return (*(cuts[-(-place * count // ranks)] for place in range(ranks)), extent)


def collapsed(bounds: tuple[int, ...], narrowest: int) -> tuple[int, ...]:
    """Return `bounds`, or bounds over half as many ranks, a quarter..., whose blocks are `narrowest` voxels on average.

    Where the axis is long enough for all ranks and some have nothing, it is dealt out anew.

    >>> collapsed((0, 2, 4, 6, 8), 4), collapsed((0, 2, 4, 6, 8), 2), collapsed((0, 4, 4, 8, 8), 2)
    ((0, 4, 4, 8, 8), (0, 2, 4, 6, 8), (0, 2, 4, 6, 8))
    """
    ranks = len(bounds) - 1
    if narrowest < 1:
        return bounds
    parts = ranks
    while parts > 1 and bounds[-1] < narrowest * parts:
        parts = -(-parts // 2)
    idle = sum(lo == hi for lo, hi in pairwise(bounds))
    return bounds if parts == ranks and not idle else even_bounds(bounds[-1], ranks, parts=parts)


def require_fit(kind: str, axis: str, reach: Reach, extent: int) -> int:
    """Return the number of outputs over `extent` voxels; raises UsageError when there are none."""
    count = reach.outputs(extent)
    if count < 1:
        raise UsageError(
            f"{kind} over {extent} voxels along {axis}",
            found=reach.describe(),
            expected="at least one output",
        )
    return count


def clamped(inner: Sequence[int], count: int) -> tuple[int, ...]:
    """Return bounds of `count` outputs from the wanted inner ones, which may lie outside."""
    return (0, *(min(max(first, 0), count) for first in inner), count)
