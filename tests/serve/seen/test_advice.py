"""Advice: what is said to be saved is what the optimum would save, and no more than was waited."""

from __future__ import annotations

import numpy as np
import pytest

from voxload.prefetch.line import Ints
from voxload.serve.seen.advice import Used, advise

BLOCKS = 100


def used(room: int, *, stall: float = 200.0, epochs: int = 4, accesses: Ints | None = None) -> Used:
    """Return what a job used that draws each block of a byte once an epoch."""
    drawn = np.random.default_rng(0)
    every = np.concatenate([drawn.permutation(BLOCKS) for _ in range(epochs)])
    chosen = every if accesses is None else accesses
    return Used(chosen, block=1.0, room=room, read_seconds=2.0, reads_at_once=4, stall=stall)


def test_more_room_saves_reads() -> None:
    """Each of which takes half a second here, four at once."""
    found = advise(used(50))
    assert found is not None
    assert 0 < found.more <= BLOCKS - 50
    assert 0 < found.seconds <= 0.5 * BLOCKS


def test_no_more_is_promised_than_was_waited() -> None:
    """However long reads take."""
    found = advise(used(50, stall=8.0))
    assert found is not None
    assert found.seconds <= 8.0 / 4


@pytest.mark.parametrize(
    "words",
    [
        used(BLOCKS),
        used(2 * BLOCKS),
        used(0),
        used(50, epochs=1),
        used(50, stall=0.0),
        used(50, accesses=np.zeros(0, np.int64)),
        used(50, accesses=np.arange(BLOCKS)),
    ],
)
def test_nothing_is_said_where_nothing_is_known_or_gained(words: Used) -> None:
    """All fits, there is no room at all, too little was used, or nobody waited."""
    assert advise(words) is None
