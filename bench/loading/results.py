"""Results: the runs of each contender, and what they come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.loading.cases import Case
from bench.loading.contender import Contender
from bench.loading.job import Account


@dataclass(frozen=True, slots=True)
class Weight:
    """What one contender's processes held, together."""

    base: int
    """Bytes when everything was imported, and nothing made."""
    peak: int
    """Most bytes at any time."""


@dataclass(frozen=True, slots=True)
class Run:
    """One contender's epochs, once."""

    account: Account
    weight: Weight
    """Of a run beside the one that was timed."""
    batches: int
    """Of an epoch."""

    @property
    def first(self) -> float:
        """Seconds to the first batch."""
        return self.account.first

    @property
    def rate(self) -> float:
        """Batches a second in all epochs, from the making of the data set on."""
        return self.batches * len(self.account.epochs) / sum(self.account.epochs)

    @property
    def later_rate(self) -> float:
        """Batches a second from the second epoch on, over the ends of epochs."""
        later = self.account.epochs[1:]
        return self.batches * len(later) / sum(later)

    @property
    def held(self) -> int:
        """Bytes that loading took: beyond those that the process held with everything imported."""
        return self.weight.peak - self.weight.base

    @property
    def pause(self) -> float:
        """The 99th percentile of the steps of a consumer that computes, over their median."""
        steps = self.account.steps
        return float(np.percentile(steps, 99) / np.median(steps)) if steps else float("nan")


@dataclass(frozen=True, slots=True)
class Result:
    """All runs of a contender in a case."""

    contender: Contender
    case: Case
    runs: tuple[Run, ...]
    """One for each round."""

    def median(self, figure: Callable[[Run], float]) -> float:
        """Return the middle one of a figure."""
        return float(np.median([figure(run) for run in self.runs]))

    def spread(self, figure: Callable[[Run], float]) -> float:
        """Return half the distance from the least to the most, over the middle one."""
        found = [figure(run) for run in self.runs]
        return (max(found) - min(found)) / 2 / self.median(figure)

    @property
    def voxels(self) -> set[tuple[tuple[int, ...], ...]]:
        """Every stream of voxels that was seen, without order within an epoch."""
        return {run.account.sums for run in self.runs}
