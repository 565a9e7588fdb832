"""Amounts: computing that is so much work, not so much time: what a loader takes from the loop makes it longer.

``python`` is bytecode, which holds the interpreter's lock; ``torch-small`` is small operations of torch, which take and
release it all the time, as the launches of a network's kernels do. How long each takes alone is measured before the
loader begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

_PIECE = 0.01
"""Seconds of a measurement: longer than the interpreter's switch interval."""
_PIECES = 25
"""Measurements, of which the middle one counts: a processor that is boosted for a moment does not stay so."""
_LEARN = 1000
"""Rounds that the first measurement makes."""
_SMALL = 1024
"""Elements of a small operation: launching it takes longer than doing it."""


class Amount:
    """Work in rounds of equal length; used by one thread.

    Parameters
    ----------
    rounds
        Does so many.
    """

    def __init__(self, rounds: Callable[[int], None]) -> None:
        self._rounds = rounds
        self._timed(_LEARN)  # what is made once, and no round's
        count = max(1, int(_PIECE * _LEARN / self._timed(_LEARN)))
        self._each = median(self._timed(count) for _ in range(_PIECES)) / count

    def do(self, seconds: float) -> None:
        """Do what took so many seconds when nothing else ran."""
        self._rounds(round(seconds / self._each))

    def _timed(self, count: int) -> float:
        begin = time.perf_counter()
        self._rounds(count)
        return max(time.perf_counter() - begin, 1e-9)


def bytecode() -> Amount:
    """Return work that the interpreter does."""
    return Amount(_bytecode)


def small_operations() -> Amount:
    """Return work that torch does in small operations, one after the other."""
    one, other = torch.zeros(_SMALL), torch.ones(_SMALL)

    def rounds(count: int) -> None:
        for _ in range(count):
            one.add_(other)
            one.mul_(0.5)

    return Amount(rounds)


def _bytecode(count: int) -> None:
    value = 1
    for _ in range(count):
        value = (value * 1_103_515_245 + 12_345) & 0x7FFFFFFF
