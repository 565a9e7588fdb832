"""Uses: when and by which group every sample is used, as far as that is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import int64, types

from voxload.errors import UsageError
from voxload.prefetch.line import EpochOrder, Ints
from voxload.readers.compiling import compiled

STEPS = types.Array(int64, 3, "C")
ORDER = types.Array(int64, 3, "C", readonly=True)
TABLE = types.Array(int64, 2, "C")
NUMBERS = types.Array(int64, 1, "C")
NEVER = 1 << 40
"""A next use beyond all steps: none is known."""


@compiled(ORDER, NUMBERS)
def _count(order: Any, counts: Any) -> None:
    """Add the uses of each sample in one epoch."""
    for sample in order.ravel():
        if sample >= 0:
            counts[sample] += 1


@compiled(ORDER, int64, NUMBERS, TABLE)
def _enter(order: Any, first: int, places: Any, uses: Any) -> None:
    """Enter the uses of one epoch, each at its sample's next place."""
    groups, steps, batch = order.shape
    for step in range(steps):
        for group in range(groups):
            for place in range(batch):
                sample = order[group, step, place]
                if sample >= 0:
                    use = places[sample]
                    uses[use, 0], uses[use, 1] = first + step, group
                    places[sample] += 1


@compiled(TABLE, NUMBERS, int64, NUMBERS)
def _end(uses: Any, bounds: Any, first: int, ends: Any) -> None:
    """Find, for each step, the first use that ends a pause between two uses of a sample that begins no earlier."""
    for sample in range(len(bounds) - 1):
        for use in range(bounds[sample], bounds[sample + 1] - 1):
            step = uses[use, 0] - first
            ends[step] = min(ends[step], uses[use + 1, 0])
    for step in range(len(ends) - 2, -1, -1):
        ends[step] = min(ends[step], ends[step + 1])


def order_of(epoch: EpochOrder, samples: int, groups: int) -> Ints:
    """Return an epoch's accesses as kernels take them, compared with the line.

    Raises
    ------
    UsageError
        It has other groups than the line, or samples that the line has not.
    """
    order = np.ascontiguousarray(epoch.samples, np.int64)
    if order.ndim != 3 or len(order) != groups:
        raise UsageError(
            f"order of epoch {epoch.epoch}", found=f"shape {order.shape}", expected=f"({groups}, steps, batch)"
        )
    if order.size and not (order.min() >= -1 and order.max() < samples):
        raise UsageError(
            f"order of epoch {epoch.epoch}",
            found=f"samples {order.min()} to {order.max()}",
            expected=f"-1 to {samples - 1}",
        )
    return order


def tabulate(orders: Sequence[Ints], first: int, samples: int) -> tuple[Ints, Ints, Ints]:
    """Tabulate all uses that are known.

    Returns
    -------
    uses
        (step, group) rows, sorted by sample and then time.
    bounds
        Where each sample's rows begin: ``(samples + 1,)``.
    ends
        For each step from the first one, ``(steps + 1,)``: the earliest step at which a sample is used that was used
        before, then or later. No block kept from that step on can be of use before.
    """
    begin, counts = first, np.zeros(samples, np.int64)
    for order in orders:
        _count(order, counts)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    uses, places = np.zeros((int(bounds[-1]), 2), np.int64), bounds[:-1].copy()
    for order in orders:
        _enter(order, first, places, uses)
        first += order.shape[1]
    ends = np.full(first - begin + 1, NEVER, np.int64)
    _end(uses, bounds, begin, ends)
    return uses, bounds, ends
