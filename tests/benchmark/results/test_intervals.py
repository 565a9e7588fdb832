"""Intervals of repetitions: right by counting all cases, and honest about few."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from voxload.benchmark.results import intervals
from voxload.benchmark.results.intervals import median_interval, ratio, ratio_interval


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3), (3, 2), (4, 4), (5, 3)])
def test_orders_are_counted_as_trying_all_of_them_counts(first: int, second: int) -> None:
    """Of all ways to deal ranks to two sides, so many have i pairs in which the second side is below."""
    counts = [0] * (first * second + 1)
    for chosen in combinations(range(first + second), first):
        others = [rank for rank in range(first + second) if rank not in chosen]
        counts[sum(other < rank for rank in chosen for other in others)] += 1
    assert intervals._rank_sums(first, second) == counts


def test_the_interval_of_a_median_says_how_sure_it_is() -> None:
    """Five values lie on one side of the median in 2 of 32 cases; nine allow to leave out one at each end."""
    assert median_interval([7.0]) is None
    five = median_interval([3.0, 1.0, 2.0, 5.0, 4.0])
    assert five is not None
    assert (five.low, five.high, five.coverage, five.is_sure) == (1, 5, 1 - 2 / 32, False)
    nine = median_interval([float(value) for value in range(9)])
    assert nine is not None
    assert (nine.low, nine.high, nine.coverage, nine.is_sure) == (1, 7, 1 - 20 / 512, True)


def test_the_interval_of_a_ratio_holds_it_as_often_as_it_says() -> None:
    """Of 400 pairs of five runs with a true ratio of 1.25, 96.8 % of the intervals hold it, give or take three."""
    random = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        before, after = random.lognormal(0, 0.1, 5), 1.25 * random.lognormal(0, 0.1, 5)
        found = ratio_interval(before.tolist(), after.tolist())
        assert found is not None
        assert found.coverage == pytest.approx(1 - 8 / 252)
        held += found.low <= 1.25 <= found.high
    assert held / 400 == pytest.approx(1 - 8 / 252, abs=0.03)


def test_three_runs_of_each_never_reach_the_level() -> None:
    """The interval spans all ratios and says 90 %."""
    found = ratio_interval([1.0, 1.0, 1.0], [2.0, 3.0, 4.0])
    assert found is not None
    assert (found.low, found.high, found.is_sure) == (2, 4, False)
    assert found.coverage == pytest.approx(0.9)
    assert ratio_interval([1.0], [2.0, 3.0]) is None


def test_nothing_over_nothing_is_no_change() -> None:
    """Zeros have ratios too: devices that gave no byte before and some after."""
    assert (ratio(0.0, 0.0), ratio(0.0, 2.0), ratio(2.0, 0.0)) == (1, math.inf, 0)
    found = ratio_interval([0.0] * 5, [0.0] * 5)
    assert found is not None
    assert (found.low, found.high) == (1, 1)
