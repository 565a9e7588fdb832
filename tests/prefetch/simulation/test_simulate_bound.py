"""The lower bound and the optimum of storage bytes: closed forms against exhaustive search."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.prefetch import machines
from voxload.prefetch.line import EpochOrder, Line, Room
from voxload.prefetch.simulation.bound import lower_bound, optimum_storage_bytes
from voxload.prefetch.simulation.workload import Workload


def _order(samples: list[int]) -> EpochOrder:
    return EpochOrder(0, np.array(samples, np.int64).reshape(1, -1, 1))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=11), st.integers(0, 4))
def test_belady_equals_exhaustive_search(accesses: list[int], slots: int) -> None:
    """With blocks of one size, no choice of what to keep reads less from the storage."""

    @cache
    def best(place: int, kept: frozenset[int]) -> int:
        if place == len(accesses):
            return 0
        sample = accesses[place]
        candidates = sorted(kept | {sample})
        sizes = range(min(slots, len(candidates)) + 1)
        choices = (frozenset(choice) for size in sizes for choice in combinations(candidates, size))
        return (sample not in kept) + min(best(place + 1, choice) for choice in choices)

    line = Line(np.full(6, 10, np.int64), (Room(10 * slots + 3, 0),))
    assert optimum_storage_bytes([_order(accesses)], line) == 10 * best(0, frozenset())


def test_rooms_count_together() -> None:
    """Memory and disk of all groups are one cache: with all of them each block is read once, with none each time."""
    samples = np.arange(8).reshape(2, 4, 1)
    orders = [EpochOrder(epoch, samples[:: (-1) ** epoch]) for epoch in range(3)]
    sizes = np.full(8, 100, np.int64)
    assert optimum_storage_bytes(orders, Line(sizes, (Room(299, 200), Room(100, 300)))) == 800
    assert optimum_storage_bytes(orders, Line(sizes, (Room(0, 0), Room(0, 0)))) == 3 * 800


def test_what_is_not_there_is_not_read() -> None:
    """Places of shorter batches count for nothing."""
    samples = np.array([[[0, 1], [2, -1]]])
    line = Line(np.full(3, 7, np.int64), (Room(0, 0),))
    assert optimum_storage_bytes([EpochOrder(0, samples)], line) == 21


def test_the_three_bounds() -> None:
    """Compute, storage once and slots are what a calculation by hand gives, for two lines of two groups."""
    machine = machines.load("nopfs-cluster")
    samples = np.arange(40).reshape(2, 10, 2)
    orders = [EpochOrder(epoch, samples) for epoch in range(3)]
    line = Line(np.full(40, 10_000_000, np.int64), (machine.room,) * 2)
    bound = lower_bound(machine, Workload(line, orders, compute=0.5, lines=2))
    assert bound.compute == 15.0
    assert bound.storage == pytest.approx(2 * 400e6 / 1540e6)
    inflow = 85e9 + 4e9 + 24e9
    # 5 GB hold 250 batches of 20 MB: slots are no bound here, filling them is.
    assert bound.slots == pytest.approx(max(600e6 / inflow, (600e6 / inflow + 15) / 250))
    # The first epoch uses 40 MB of each line a step: the last of its 10 steps cannot begin before all are read.
    assert bound.order == pytest.approx(max(15 + 2 * 40e6 / 1540e6, 2 * 400e6 / 1540e6 + 21 * 0.5))
    assert bound.seconds == bound.order
