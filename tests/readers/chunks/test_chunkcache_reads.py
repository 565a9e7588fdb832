"""Reads through the cache of decoded chunks: each chunk decoded once, within the budget, and nobody waits in vain."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers.counted_cube import (
    CHUNKS,
    COST,
    CUBE,
    SHAPE,
    WHOLE,
    Counting,
    cache_of,
    check,
    never,
    places,
    read,
    stored,
    volume,
)
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import chunk_cache, set_chunk_cache
from voxload.readers.chunks.checksums import Checksums
from voxload.readers.chunks.chunkcache import Identity, Key
from voxload.readers.chunks.chunked import Fetched
from voxload.readers.chunks.verified import verified
from voxload.readers.pasting.pasteplan import Place, Wanted
from voxload.readers.scratch import Bytes
from voxload.readers.team import default_threads, set_threads

pytestmark = pytest.mark.usefixtures("chunk_cache_off")

WAIT = 60


def test_a_block_and_its_halo_decode_each_chunk_once() -> None:
    """What one read has decoded the next one pastes, in other parts and another type, and the figures say so."""
    cache, step = cache_of(CHUNKS), Counting()
    source = volume(step)
    block, halo = Box((4, 4, 4), (12, 12, 12)), Box((2, 2, 2), (14, 18, 14))
    assert np.array_equal(read(source, block), CUBE[block.slices])
    assert step.count == 8
    assert np.array_equal(read(source, halo), CUBE[halo.slices])
    assert step.count == 2 * 3 * 2
    floats = np.empty(block.shape, np.float32)
    source.read_all([Wanted(block, floats)], fill=never)
    assert np.array_equal(floats, CUBE[block.slices])
    assert np.array_equal(read(source), CUBE)
    assert step.count == CHUNKS
    figures = cache.figures()
    assert (figures.misses, figures.evictions, figures.chunks) == (CHUNKS, 0, CHUNKS)
    assert (figures.hits, figures.nbytes) == (8 + 8 + 12, CHUNKS * COST)
    check(cache)


def test_without_a_cache_every_read_decodes() -> None:
    """The default keeps nothing; 0 takes a cache away again; a negative budget is refused."""
    step = Counting()
    assert chunk_cache() is None
    for expected in (CHUNKS, 2 * CHUNKS):
        assert np.array_equal(read(volume(step)), CUBE)
        assert step.count == expected
    set_chunk_cache(10**6)
    set_chunk_cache(0)
    assert chunk_cache() is None
    with pytest.raises(UsageError, match="budget: found -1"):
        set_chunk_cache(-1)


@given(data=st.data())
def test_reads_by_many_threads_equal_plain_ones(data: st.DataObject) -> None:
    """With any budget, tiny ones included, any boxes by any threads are numpy's; the budget holds at every decode."""
    budget = data.draw(st.sampled_from([1, COST - 1, COST, 3 * COST, 7 * COST + 5, 40 * COST]))
    starts = st.tuples(*[st.integers(0, n - 1) for n in SHAPE])
    corners = data.draw(st.lists(st.tuples(starts, starts), min_size=1, max_size=12))
    boxes = [
        Box(tuple(map(min, one, other)), tuple(max(pair) + 1 for pair in zip(one, other, strict=True)))
        for one, other in corners
    ]
    set_chunk_cache(budget)
    cache = chunk_cache()
    assert cache is not None
    over: list[int] = []

    def look() -> None:
        figures = cache.figures()
        if figures.nbytes > budget:
            over.append(figures.nbytes)

    source = volume(Counting(look))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda box: read(source, box), boxes))
    assert all(np.array_equal(view, CUBE[box.slices]) for view, box in zip(found, boxes, strict=True))
    assert over == []
    touched = sum(len(places(box)) for box in boxes)
    figures = cache.figures()
    assert figures.hits + figures.misses == touched
    check(cache)


def test_threads_decode_each_chunk_once_where_the_budget_holds_them() -> None:
    """Eight threads that start at once on the same chunks decode each of them once."""
    cache, step = cache_of(CHUNKS), Counting()
    source, start = volume(step), threading.Barrier(8)

    def work(_number: int) -> bool:
        start.wait(WAIT)
        return np.array_equal(read(source), CUBE)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert step.count == CHUNKS == cache.figures().misses
    check(cache)


@pytest.mark.parametrize("first_fails", [False, True])
def test_two_reads_of_one_chunk_decode_it_once(monkeypatch: pytest.MonkeyPatch, first_fails: bool) -> None:
    """The second read waits for the first one, and decodes the chunk itself where that one failed."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1})  # for as many threads that work at once
    set_threads(1)
    cache = cache_of(CHUNKS)
    inside, leave, beside = threading.Event(), threading.Event(), threading.Event()

    def first_chunk() -> None:
        inside.set()
        assert leave.wait(WAIT)
        if first_fails:
            raise ValueError("a bad sector")

    slow, quick = Counting(first_chunk), Counting(beside.set)
    source = volume(Switch(slow, quick))
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(read, source, Box((0, 0, 0), (8, 8, 8)))
        assert inside.wait(WAIT)
        other = pool.submit(read, source, Box((0, 0, 0), (8, 8, 16)))
        assert beside.wait(WAIT)  # it has claimed both chunks, and decodes the one that nobody else does
        leave.set()
        if first_fails:
            with pytest.raises(DataError, match=r"cube, chunk \(0, 0, 0\): found a bad sector"):
                one.result(WAIT)
        else:
            assert np.array_equal(one.result(WAIT), CUBE[:8, :8, :8])
        assert np.array_equal(other.result(WAIT), CUBE[:8, :8, :16])
    assert (slow.count, quick.count) == (1, 2 if first_fails else 1)
    check(cache)
    monkeypatch.undo()
    set_threads(default_threads())


@dataclass(eq=False)
class Switch:
    """Undoes the first chunk with one step, and all later ones with another."""

    first: Counting
    later: Counting
    grows: int | None = None
    taken: list[None] = field(default_factory=lambda: [None])

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the data."""
        step = self.first if self.taken else self.later
        self.taken.clear()
        return step.undo(data, size)


def test_errors_are_not_kept() -> None:
    """A chunk that could not be decoded is asked for again, and kept once it can."""
    cache, damaged = cache_of(CHUNKS), {(0, 1, 1): stored((0, 1, 1))[:-3]}
    step = Counting()
    source = volume(step, fetch=lambda place: Fetched(damaged.get(place, stored(place))))
    for _ in range(2):
        with pytest.raises(DataError, match=r"cube, chunk \(0, 1, 1\): "):
            read(source)
        check(cache)
    damaged.clear()
    assert np.array_equal(read(source), CUBE)
    before = step.count
    assert np.array_equal(read(source), CUBE)
    assert step.count == before


def test_missing_chunks_are_filled_and_not_kept() -> None:
    """A chunk that was never written is the caller's to fill at every read."""
    cache, filled = cache_of(CHUNKS), list[tuple[int, ...]]()
    source = volume(Counting(), fetch=lambda place: Fetched(stored(place)) if place != (0, 0, 0) else None)
    for _ in range(2):
        source.read(WHOLE, np.empty(SHAPE, np.int16), fill=lambda view: filled.append(view.shape))
    assert filled == [(8, 8, 8)] * 2
    assert cache.figures().chunks == CHUNKS - 1
    check(cache)


def test_what_changes_while_it_is_fetched_is_not_kept() -> None:
    """Bytes that are newer than what was asked about are pasted, and kept under no name."""
    cache, versions = cache_of(CHUNKS), Counter[Place]()

    def identify(places: Sequence[Place]) -> list[Identity | None]:
        return [
            Identity(("cube", str(versions[place])), place) if place != (1, 1, 1) else None  # which has no name
            for place in places
        ]

    def fetch(place: Place) -> Fetched:
        versions[place] += place == (0, 0, 0)
        return Fetched(stored(place))

    step = Counting()
    source = volume(step, fetch=fetch, identify=identify)
    for _ in range(2):
        assert np.array_equal(read(source, Box((0, 0, 0), (16, 16, 16))), CUBE[:16, :16, :16])
    assert step.count == 6 + 2 * 2
    check(cache)


def test_chunks_ahead_are_those_that_are_loaded() -> None:
    """A source that fetches ahead is told of the chunks that will be taken, and of no others."""
    cache_of(CHUNKS)
    told: list[list[Place]] = []

    class Ahead:
        def __init__(self, places: Sequence[Place]) -> None:
            self.places = list(places)

        def __enter__(self) -> Callable[[Place], Fetched]:
            told.append(list(self.places))
            return self.take

        def take(self, place: Place) -> Fetched:
            self.places.remove(place)
            return Fetched(stored(place))

        def __exit__(self, *_error: object) -> None:
            assert self.places == []

    source = volume(Counting(), expect=Ahead)
    block = Box((0, 0, 0), (8, 8, 16))
    assert np.array_equal(read(source, block), CUBE[block.slices])
    assert np.array_equal(read(source, Box((0, 0, 0), (8, 16, 16))), CUBE[:8, :16, :16])
    assert told == [[(0, 0, 0), (0, 0, 1)], [(0, 1, 0), (0, 1, 1)]]


def test_chunks_are_never_handed_to_who_wants_them_verified() -> None:
    """What was decoded without a checksum, or with another one, is compared before it is used."""
    cache_of(CHUNKS)
    step = Counting()
    plain = volume(step)
    assert np.array_equal(read(plain), CUBE)
    checksums = Checksums.empty((3, 3, 2))
    for place in places(WHOLE):
        checksums.record(place, stored(place))
    assert np.array_equal(read(verified(plain, checksums, str)), CUBE)
    assert step.count == 2 * CHUNKS
    assert np.array_equal(read(verified(plain, checksums, str)), CUBE)
    assert step.count == 2 * CHUNKS
    checksums.values[1, 1, 1] ^= 1
    with pytest.raises(DataError, match=r"cube, chunk \(1, 1, 1\): bytes of chunk"):
        read(verified(plain, checksums, str))


def test_a_forked_child_begins_with_an_empty_cache() -> None:
    """A child waits for no read of its parent's, shares nothing with it, and may use as much memory."""
    cache, step = cache_of(CHUNKS), Counting()
    source = volume(step)
    assert np.array_equal(read(source), CUBE)
    one = Key(source.pipeline, Identity(("cube", '"1"'), (9, 9, 9)))
    with cache.claimed([one]), cache._lock:
        child = os.fork()
        if child == 0:
            ok = False
            signal.alarm(30)  # a child that waits for a lock of its parent's must not wait for ever
            try:
                own = chunk_cache()
                ok = own is not None and own is not cache and own.budget == cache.budget
                ok = ok and own is not None and own.figures().chunks == 0
                ok = ok and np.array_equal(read(source), CUBE) and step.count == 2 * CHUNKS
            finally:
                os._exit(0 if ok else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert cache.figures().chunks == CHUNKS
    check(cache)
