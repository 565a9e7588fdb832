"""Virtual ranks: their order repeats, and those that wait for each other are told so, whatever the clock says."""

from __future__ import annotations

import pytest

from voxload.engine import Loopback
from voxload.errors import InternalError
from voxload.grid import ProcessGrid

GRID = ProcessGrid((2, 2, 1), 4)


def test_ranks_take_turns_in_their_order() -> None:
    """From one meeting to the next; what the ranks do between never interleaves."""
    for _ in range(20):
        world = Loopback(GRID)
        seen: list[tuple[int, int]] = []

        def run(rank: int, world: Loopback = world, seen: list[tuple[int, int]] = seen) -> None:
            for step in range(3):
                seen.append((step, rank))
                world.rank(rank).share([step])

        world.run(run)
        # The last one of a meeting completes it, and begins the next one.
        assert seen == [(0, rank) for rank in range(4)] + [(1, r) for r in (3, 0, 1, 2)] + [
            (2, r) for r in (2, 3, 0, 1)
        ]


def test_a_rank_that_ends_too_early_leaves_no_other_waiting() -> None:
    """There is no time limit to wait for."""
    world = Loopback(GRID)
    told = {}

    def run(rank: int) -> None:
        if rank == 2:
            return
        with pytest.raises(InternalError) as caught:
            world.rank(rank).share([rank])
        told[rank] = str(caught.value)

    world.run(run)
    assert set(told) == {0, 1, 3}
    assert all("all wait for each other, or have ended" in words for words in told.values())


def test_the_first_error_is_the_one_that_is_raised() -> None:
    """The others hear which rank failed."""
    world = Loopback(GRID)
    told = []

    def run(rank: int) -> None:
        if rank == 3:
            raise ZeroDivisionError
        with pytest.raises(InternalError) as caught:
            world.rank(rank).share([rank])
        told.append(str(caught.value))

    with pytest.raises(ZeroDivisionError):
        world.run(run)
    assert len(told) == 3
    assert all("rank 3 failed" in words for words in told)
