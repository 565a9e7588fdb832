"""Advice: what more memory would be worth, by what jobs used; pure.

The optimum over all that was used, with the room that there is and with more of it, says how many reads more room would
save; what a read took says how many seconds. No more is promised than jobs have waited.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from voxload.prefetch.line import Ints
from voxload.prefetch.simulation.optimum import reads_of_optimum

_MORE = (1.25, 1.5, 2.0)
"""Rooms that are looked at, beside that of all blocks, as multiples of what there is."""
_LEAST = 0.02
"""Of the stall that more room has to save to be worth a word."""


@dataclass(frozen=True, slots=True)
class Used:
    """What jobs used, and what it took."""

    accesses: Ints
    """Blocks, in the order in which they were used by all jobs."""
    block: float
    """Bytes of one, on average."""
    room: int
    """Bytes that blocks have."""
    read_seconds: float
    """That a read of the storage took, on average."""
    reads_at_once: int
    stall: float
    """Seconds that jobs waited while they used these."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What more memory would save."""

    more: int
    """Bytes."""
    seconds: float
    """An epoch, as long as one in which each block is used once by each job."""


def advise(used: Used) -> Advice | None:
    """Return what is worth most for each byte; None where nothing is worth a word, or too little was used to tell."""
    blocks = len(np.unique(used.accesses))
    room = int(used.room / used.block) if used.block else 0
    if room < 1 or blocks <= room or len(used.accesses) < 2 * blocks:
        return None
    epochs = len(used.accesses) / blocks
    reads = _reads(used.accesses, room)
    best: Advice | None = None
    for wanted in sorted({min(blocks, int(room * more)) for more in _MORE} | {blocks}):
        saved = (reads - _reads(used.accesses, wanted)) * used.read_seconds / used.reads_at_once
        seconds = min(saved, used.stall) / epochs
        found = Advice(int((wanted - room) * used.block), seconds)
        is_worth = wanted > room and seconds >= _LEAST * used.stall / epochs > 0
        if is_worth and (best is None or found.seconds / found.more > best.seconds / best.more):
            best = found
    return best


def _reads(accesses: Ints, room: int) -> int:
    """Return the reads of the optimum, but for each block's first: no room saves those."""
    return int(reads_of_optimum(accesses, room).sum()) - len(np.unique(accesses))
