"""Intervals: how sure a few repetitions are; by ranks, so that no shape of the noise is assumed; pure.

The interval of a median reaches from one order statistic to another. The interval of a ratio is that of Hodges and
Lehmann: of all ratios of a run of one side to a run of the other, as many are cut off at both ends as the test of Mann
and Whitney allows. Few repetitions do not reach `LEVEL`; an interval then spans all of them and says its coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

LEVEL = 0.95
"""Coverage that is aimed at."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a true value lies."""

    low: float
    high: float
    coverage: float
    """How often such an interval holds the true value, from 0 to 1."""

    @property
    def is_sure(self) -> bool:
        """Whether the coverage is what was aimed at."""
        return self.coverage >= LEVEL


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the interval of the median that `values` were drawn around; None of fewer than two."""
    if len(values) < 2:
        return None
    counts = [math.comb(len(values), heads) for heads in range(len(values) + 1)]
    return _inner(sorted(values), counts)


def ratio_interval(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """Return the interval of how many times larger `after` is; None where either has fewer than two values.

    Values are at least 0. A ratio to 0 is infinite, that of two zeros is 1.
    """
    if min(len(before), len(after)) < 2:
        return None
    ratios = sorted(ratio(first, second) for first in before for second in after)
    return _inner(ratios, _rank_sums(len(before), len(after)))


def ratio(before: float, after: float) -> float:
    """Return ``after / before``; infinite where only `before` is 0, and 1 where both are."""
    if before == after:
        return 1.0
    return after / before if before else math.inf


def _inner(ordered: Sequence[float], counts: Sequence[int]) -> Interval:
    """Return the shortest interval between order statistics that covers `LEVEL`, or the longest there is.

    Entry i of `counts` says in how many equally likely cases the true value has i of the values below it.
    """
    total = sum(counts)
    tails = [2 * tail / total for tail in accumulate(counts)]
    cut = max((place for place in range(len(ordered) // 2) if tails[place] <= 1 - LEVEL), default=0)
    return Interval(ordered[cut], ordered[-1 - cut], 1 - tails[cut])


def _rank_sums(first: int, second: int) -> list[int]:
    """Return in how many orders of ``first + second`` values i pairs have the second side's value below.

    They are the coefficients of the Gaussian binomial: the product of ``(1 - x^(second + k)) / (1 - x^k)``.
    """
    length = first * second + 1
    counts = [1] + [0] * (length - 1)
    for k in range(1, first + 1):
        for place in range(length - 1, second + k - 1, -1):
            counts[place] -= counts[place - second - k]
        for place in range(k, length):
            counts[place] += counts[place - k]
    return counts
