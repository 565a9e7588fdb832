"""Uses: when and by which group every sample is used, as far as that is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from voxload.core.library import function
from voxload.errors import UsageError
from voxload.prefetch.line import EpochOrder, Ints

NEVER = 1 << 40
"""A next use beyond all steps: none is known."""


_count = function("count_uses", "rnw")
_enter = function("enter_uses", "rnnniww")
_find_pauses = function("find_pauses", "rrniwn")


def order_of(epoch: EpochOrder, samples: int, groups: int) -> Ints:
    """Return an epoch's accesses as the core takes them, compared with the line.

    Raises
    ------
    UsageError
        It has other groups than the line, or samples that the line has not.
    """
    order = np.ascontiguousarray(epoch.samples, np.int64)
    if not order.flags.aligned:  # a view into packed bytes
        order = order.copy()
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
        _count(order, order.size, counts)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    uses, places = np.zeros((int(bounds[-1]), 2), np.int64), bounds[:-1].copy()
    for order in orders:
        _enter(order, *order.shape, first, places, uses)
        first += order.shape[1]
    ends = np.full(first - begin + 1, NEVER, np.int64)
    _find_pauses(uses, bounds, samples, begin, ends, len(ends))
    return uses, bounds, ends
