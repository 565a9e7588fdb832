"""Tables: how often each of 65,536 keys was met, counted without the interpreter lock."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numba import int64, types, uint32, uint64

from voxload.readers.compiling import part
from voxload.statistics import BINS

LANES = 4
"""Tables that take turns: an increment need not wait for that of an equal neighbour."""
_APART = 80
"""Places by which equal keys of two tables are not a power of two apart: they would push each other out of caches."""
_RUN = 64
"""Keys that are looked at together: most are of none that occur."""
TABLE: Any = types.Array(uint32, 2, "C")
_ZERO, _ONE = uint64(0), uint64(1)


class Tables(threading.local):
    """A thread's tables, all zero between calls, and room for what is found in them."""

    def __init__(self) -> None:
        self.counts = np.zeros((LANES, BINS + _APART), np.uint32)
        self.found = np.empty((2, BINS), np.uint32)


TABLES = Tables()


@part
def count_keys(counts: Any, keys: Any, size: Any) -> None:
    """Count the first keys of an array."""
    whole = size // uint64(LANES) * uint64(LANES)
    for place in range(_ZERO, whole, uint64(LANES)):
        counts[0, keys[place]] += uint32(1)
        counts[1, keys[place + _ONE]] += uint32(1)
        counts[2, keys[place + uint64(2)]] += uint32(1)
        counts[3, keys[place + uint64(3)]] += uint32(1)
    for place in range(whole, size):
        counts[0, keys[place]] += uint32(1)


@part
def gather(counts: Any, found: Any, last: Any) -> Any:
    """List the keys up to `last` whose sums are not zero, and the sums; zero the tables; return how many."""
    different, run = _ZERO, uint64(_RUN)
    for begin in range(_ZERO, last + _ONE, run):
        union = uint32(0)
        for key in range(begin, begin + run):
            union |= counts[0, key] | counts[1, key] | counts[2, key] | counts[3, key]
        if union:
            for key in range(begin, begin + run):
                count = counts[0, key] + counts[1, key] + counts[2, key] + counts[3, key]
                if count:
                    found[0, different], found[1, different] = key, count
                    different += _ONE
                    counts[0, key] = counts[1, key] = counts[2, key] = counts[3, key] = 0
    return int64(different)
