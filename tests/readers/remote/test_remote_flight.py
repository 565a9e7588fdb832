"""Flights: every chunk arrives once, within the budget, and nothing waits for ever."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import processes
from voxload.errors import StorageError, UsageError
from voxload.readers.remote.coalesce import Get, Piece, plan_requests
from voxload.readers.remote.flight import ByteBudget, Flight
from voxload.readers.scratch import Bytes

pytestmark = pytest.mark.usefixtures("no_leaks")

OBJECT = np.random.default_rng(0).integers(0, 256, 4096).astype(np.uint8)


@st.composite
def reads(draw: st.DrawFn) -> list[Piece]:
    """Draw the chunks of a read, in the order of their use, anywhere in a few objects."""
    spans = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3900), st.integers(1, 90)), max_size=40))
    return [Piece((number,), key, start, start + size) for number, (key, start, size) in enumerate(spans)]


def load(get: Get) -> Bytes:
    """Return bytes as a server would."""
    return OBJECT[get.start : get.stop]


@given(reads(), st.integers(1, 500))
def test_a_plan_serves_every_chunk_once_and_in_order(pieces: list[Piece], group: int) -> None:
    """Each chunk lies in one request of its object; groups follow the order of use and hold no more than allowed."""
    groups = plan_requests(pieces, group=group)
    served = [sorted(piece.place for get in gets for piece in get.pieces) for gets in groups]
    assert list(itertools.chain.from_iterable(served)) == [piece.place for piece in pieces]
    for gets in groups:
        inside = [piece for get in gets for piece in get.pieces]
        assert len(inside) == 1 or sum(get.size for get in gets) <= 2 * group
        assert len(inside) == 1 or sum(piece.stop - piece.start for piece in inside) <= group
        for get in gets:
            assert all(piece.key == get.key for piece in get.pieces)
            assert get.start == min(piece.start for piece in get.pieces)
            assert get.stop == max(piece.stop for piece in get.pieces)


@given(st.lists(reads(), min_size=1, max_size=3), st.integers(1, 500), st.integers(1, 600))
@settings(max_examples=30)
def test_flights_share_a_budget_and_all_arrive(wanted: list[list[Piece]], group: int, limit: int) -> None:
    """Reads that go on at the same time, each with two threads, get all their bytes, and give the budget back."""
    held = ByteBudget(limit)

    def read(pieces: Sequence[Piece]) -> bool:
        left = iter(pieces)
        lock = threading.Lock()

        def work() -> bool:
            right = True
            while True:
                with lock:
                    piece = next(left, None)
                if piece is None:
                    return right
                data = flight.take(piece.place)
                right &= data is not None and np.array_equal(data, OBJECT[piece.start : piece.stop])

        with Flight(plan_requests(pieces, group=group), load, held=held) as flight, ThreadPoolExecutor(2) as pool:
            tasks = [pool.submit(work), pool.submit(work)]
            return all(task.result(timeout=processes.LIMIT) for task in tasks)

    with ThreadPoolExecutor(len(wanted)) as pool:
        assert all(pool.map(read, wanted))
    assert held.held == 0


def test_no_more_is_asked_for_than_the_budget_allows() -> None:
    """Later groups wait, unsent, until chunks of earlier ones were taken."""
    pieces = [Piece((number,), "a", 2 * number * 100, 2 * number * 100 + 100) for number in range(10)]
    sent: list[int] = []
    held = ByteBudget(300)

    def note(get: Get) -> Bytes:
        sent.append(get.size)
        return load(get)

    with Flight(plan_requests(pieces, group=100), note, held=held) as flight:
        for piece in pieces:
            assert flight.take(piece.place) is not None
            assert held.held <= 300
            assert sum(sent) <= (piece.place[0] + 1) * 100 + 300
    assert held.held == 0
    assert sum(sent) == 1000


def test_a_read_that_fails_gives_everything_back() -> None:
    """The first fault is raised where its chunk is taken; what was under way is let go of."""
    held = ByteBudget(1000)

    def fail(get: Get) -> Bytes:
        if get.start >= 2000:
            raise StorageError("object", found="trouble")
        return load(get)

    pieces = [Piece((number,), "abcdefgh"[number], 500 * number, 500 * number + 10) for number in range(8)]

    def read() -> None:
        with Flight(plan_requests(pieces, group=20), fail, held=held) as flight:
            for piece in pieces:
                flight.take(piece.place)

    with pytest.raises(StorageError, match="trouble"):
        read()
    with held._changed:
        assert held._changed.wait_for(lambda: held.held == 0, timeout=processes.LIMIT)


def test_one_that_needs_more_than_the_budget_goes_alone() -> None:
    """A chunk larger than the budget is granted when nothing else is held, and waits until then."""
    held = ByteBudget(10)
    held.reserve(4)
    assert not held.try_reserve(50)
    waiting = threading.Thread(target=held.reserve, args=(50,))
    waiting.start()
    held.release(4)
    waiting.join(timeout=processes.LIMIT)
    assert held.held == 50
    assert not held.try_reserve(1)
    held.release(50)
    with pytest.raises(UsageError, match="1 or more"):
        ByteBudget(0)
