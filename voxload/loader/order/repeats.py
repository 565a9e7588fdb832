"""Repeats: how often each sample was drawn before in its epoch, so that each draw of it is augmented anew.

A count follows from the order of the sampler alone: not from what was read ahead, or which thread came first. Batches
are counted as they are begun, in order, and taken back from the end where they are begun again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Passed = Callable[[], Iterable[Any] | None]
"""Returns the indices of the epoch that lie before where its iterator goes on; None where they are not known yet."""


class Repeats:
    """Counts the draws of one epoch; one call at a time, and what was passed is asked for by the consumer's thread.

    Parameters
    ----------
    samples
        Length of the data set; 0 where nobody asks how often: each draw is then the first.
    passed
        What was drawn before the first batch that is counted here, of an epoch that goes on in its middle.
    """

    def __init__(self, samples: int, passed: Passed = tuple) -> None:
        self._counts = np.zeros(samples, np.int64)
        self._passed = passed
        self.is_counted = not samples
        """Whether what lies before is counted, without which nothing can be counted behind it."""

    def count(self) -> bool:
        """Count what lies before, if that is known; tell whether it is counted."""
        if not self.is_counted:
            passed = self._passed()
            if passed is None:
                return False
            for index in map(operator.index, passed):
                if -self._counts.size <= index < self._counts.size:
                    self._counts[index] += 1
            self.is_counted = True
        return True

    def of(self, indices: Sequence[Any]) -> tuple[int, ...]:
        """Return for each index of a batch how often it was drawn before, in the batch too; counts nothing."""
        if not self._counts.size:
            return (0,) * len(indices)
        before: dict[int, int] = {}
        found = []
        for index in indices:
            if not self._is_sample(index):  # the data set refuses it
                found.append(0)
                continue
            number = before.get(index, int(self._counts[index]))
            before[index] = number + 1
            found.append(number)
        return tuple(found)

    def add(self, indices: Iterable[Any]) -> None:
        """Count the draws of a batch."""
        self._count(indices, 1)

    def take_back(self, indices: Iterable[Any]) -> None:
        """Count the draws of the batch counted last no more."""
        self._count(indices, -1)

    def _count(self, indices: Iterable[Any], by: int) -> None:
        if self._counts.size:
            for index in filter(self._is_sample, indices):
                self._counts[index] += by

    def _is_sample(self, index: Any) -> bool:
        return isinstance(index, int) and 0 <= index < self._counts.size
