"""Draws: the random numbers of one sample in one epoch, the same wherever they are drawn.

The bits are Philox's, seeded through numpy's SeedSequence: both are specified to the bit, so other versions of numpy
draw the same. No generator is shared, so threads and the order of samples change nothing.

Source: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; NEP 19 on what numpy keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

_BITS = 64


class Draws:
    """Whole numbers, drawn one after the other; used by one thread.

    Parameters
    ----------
    numbers
        What the stream follows from, each 0 or more: seed, epoch and sample, and what else sets it apart.
    """

    def __init__(self, *numbers: int) -> None:
        self._bits = np.random.Philox(np.random.SeedSequence(numbers))

    def below(self, count: int) -> int:
        """Return a number from 0 to `count` - 1; each is as likely as the others to one part in 2^64 / `count`."""
        return int(self._bits.random_raw()) * count >> _BITS

    def weighted(self, weights: Sequence[float]) -> int:
        """Return a place in `weights`, as likely as its weight's share; of equal weights, by whole numbers alone."""
        if len(set(weights)) == 1:
            return self.below(len(weights))
        bounds = list(accumulate(weights))
        mark = int(self._bits.random_raw()) / 2**_BITS * bounds[-1]
        last = max(place for place, weight in enumerate(weights) if weight)
        return next((place for place, bound in enumerate(bounds) if mark < bound), last)
