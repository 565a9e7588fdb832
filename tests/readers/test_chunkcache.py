"""The cache of decoded chunks: each decoded once, never more memory than the budget, nobody waits in vain."""

from __future__ import annotations

import os
import signal
import threading
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import google_crc32c
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import chunk_cache, set_chunk_cache
from voxload.readers.checksums import Checksums
from voxload.readers.chunkcache import ENTRY_BYTES, ChunkCache, Claim, Key
from voxload.readers.chunked import ChunkedVolume, Fetched
from voxload.readers.codecs import DEFLATE, Crc32c, Fletcher32, Pipeline, Step
from voxload.readers.identity import Identity
from voxload.readers.parts import ChunkShape, Place, Wanted
from voxload.readers.scratch import Bytes
from voxload.readers.team import default_threads, set_threads
from voxload.readers.verified import verified

pytestmark = pytest.mark.usefixtures("casts")

EXTENT = 8
NBYTES = EXTENT**3 * 2
COST = NBYTES + ENTRY_BYTES
SHAPE = (20, 24, 16)
CUBE = np.random.default_rng(0).integers(0, 9, SHAPE).astype("<i2")
WHOLE = Box.whole(SHAPE)
CHUNKS = 3 * 3 * 2
WAIT = 60


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    """Leave no cache behind."""
    yield
    set_chunk_cache(0)


@dataclass(eq=False)
class Counting:
    """A filter that stores data as they are, counts how often it is undone, and calls what a test wants called."""

    before: Callable[[], None] = lambda: None
    """Called first, in the thread that decodes."""
    count: int = 0
    """Chunks decoded."""
    grows: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the data; of any size, as a compressor is undone behind it."""
        del size
        with self.lock:
            self.count += 1
        self.before()
        return data


def stored(place: Place) -> npt.NDArray[np.uint8]:
    """Return a chunk of the cube as its bytes lie in planes and deflated."""
    chunk = np.zeros((EXTENT,) * 3, "<i2")
    part = CUBE[tuple(slice(i * EXTENT, (i + 1) * EXTENT) for i in place)]
    chunk[tuple(slice(0, n) for n in part.shape)] = part
    planes = np.ascontiguousarray(chunk.view("u1").reshape(-1, 2).T)
    return np.frombuffer(zlib.compress(planes.tobytes(), 1), np.uint8)


def identities(places: Sequence[Place]) -> list[Identity]:
    """Name chunks by their places."""
    return [Identity(("cube", '"1"'), place) for place in places]


def volume(step: Step, **others: Any) -> ChunkedVolume:
    """Return the cube as a volume of shuffled and deflated chunks; `step` is undone first."""
    pipeline = Pipeline((DEFLATE, step), NBYTES, is_shuffled=True, shift=1)
    sources: dict[str, Any] = {"fetch": lambda place: Fetched(stored(place)), "identify": identities, **others}
    return ChunkedVolume("cube", ChunkShape.of((EXTENT,) * 3, np.dtype("<i2")), pipeline, **sources)


def read(source: ChunkedVolume, box: Box = WHOLE) -> npt.NDArray[np.int16]:
    """Return the voxels of a box; no chunk may be missing."""
    out = np.full(box.shape, -1, np.int16)
    source.read_all([Wanted(box, out)], fill=_never)
    return out


def _never(view: npt.NDArray[Any]) -> None:
    raise AssertionError(f"nothing is missing, yet {view.shape} was to be filled")


def check(cache: ChunkCache) -> None:
    """Refuse a cache at rest that does not add up, or holds what nobody uses any more."""
    sizes = [chunk.data.size for chunk in cache._chunks.values()] + [spare.size for spare in cache._spare]
    assert cache.figures().nbytes == sum(sizes) + ENTRY_BYTES * len(sizes) <= cache.budget
    assert (cache._busy, cache._loading) == (0, {})
    assert not any(chunk.users for chunk in cache._chunks.values())


def cache_of(chunks: int) -> ChunkCache:
    """Give the process a cache with room for so many chunks."""
    set_chunk_cache(chunks * COST)
    found = chunk_cache()
    assert found is not None
    return found


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
    source.read_all([Wanted(block, floats)], fill=_never)
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
    touched = sum(len(_places(box)) for box in boxes)
    figures = cache.figures()
    assert figures.hits + figures.misses == touched
    check(cache)


def _places(box: Box) -> list[Place]:
    counts = [range(lo // EXTENT, -(-hi // EXTENT)) for lo, hi in zip(box.start, box.stop, strict=True)]
    return [(i, j, k) for i in counts[0] for j in counts[1] for k in counts[2]]


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


def test_memory_stays_within_the_budget() -> None:
    """Under threads and evictions, what numpy allocates for the cache is the budget, and buffers are used again."""
    extent, count = 64, 24
    nbytes = extent**3
    content = np.frombuffer(zlib.compress(bytes(nbytes), 1), np.uint8)
    pipeline = Pipeline((DEFLATE,), nbytes)
    shape = ChunkShape.of((extent,) * 3, np.dtype("u1"))
    source = ChunkedVolume("zeros", shape, pipeline, lambda _: Fetched(content), identify=identities)
    budget = 5 * (nbytes + ENTRY_BYTES) + 100
    set_chunk_cache(budget)
    cache = chunk_cache()
    assert cache is not None
    order = np.random.default_rng(0).permutation(np.tile(np.arange(count), 8)).tolist()

    def look(number: int) -> int:
        out = np.ones((1, 1, 1), np.uint8)
        source.read(Box((number * extent, 0, 0), (number * extent + 1, 1, 1)), out, fill=_never)
        return int(out.max())

    threads = 4
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(look, range(threads)))  # scratch and compiled code are not the cache's
        set_chunk_cache(budget)
        tracemalloc.start()
        try:
            assert max(pool.map(look, order)) == 0
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    after = chunk_cache()
    assert after is not None
    assert peak < budget + threads * nbytes  # where all is in use, a thread's scratch takes one more chunk
    assert after.figures().evictions > count
    assert after.figures().nbytes == 5 * (nbytes + ENTRY_BYTES)
    check(after)


def key(number: int, size: int = 100) -> Key:
    """Return the key of a chunk that is nowhere stored."""
    return Key(Pipeline((DEFLATE,), size), Identity(("nothing", '"1"'), number))


def put(cache: ChunkCache, number: int, size: int = 100) -> bool:
    """Load a chunk whose bytes are its number; tell whether there was room."""
    one = key(number, size)
    with cache.claimed([one]) as claim:
        return load(cache, claim, one, number, size)


def load(cache: ChunkCache, claim: Claim, one: Key, number: int, size: int = 100) -> bool:
    """Load an owned chunk."""

    def fill(out: Bytes) -> bool:
        out[:] = number
        return False

    return cache.load(claim, one, size, fill=fill) is not None


def test_the_chunk_whose_last_use_is_longest_ago_goes_first() -> None:
    """Hits count as uses; chunks in use stay whatever comes, and what does not fit beside them is not kept."""
    cache = ChunkCache(3 * (100 + ENTRY_BYTES))
    assert all(put(cache, number) for number in (1, 2, 3))
    with cache.claimed([key(1)]) as claim:
        assert claim.held[key(1)].data.tolist() == [1] * 100
        assert put(cache, 4)  # evicts 2
        assert put(cache, 5)  # evicts 3
        with cache.claimed([key(number) for number in (2, 3, 4, 5)]) as other:
            assert set(other.held) == {key(4), key(5)}
            assert other.owned == {key(2), key(3)}
            assert not load(cache, other, key(2), 2)
        assert cache.figures().evictions == 2
        assert claim.held[key(1)].data.tolist() == [1] * 100
    check(cache)
    assert not put(cache, 6, 3 * (100 + ENTRY_BYTES))
    assert cache.figures().chunks == 3  # nothing was evicted for what never fits
    assert put(cache, 7, 2 * 100 + ENTRY_BYTES)
    assert cache.figures().chunks == 2
    check(cache)


def test_buffers_are_used_again() -> None:
    """The buffer of an evicted chunk, and of one that could not be decoded, holds the next chunk of its size."""
    cache = ChunkCache(100 + ENTRY_BYTES)
    buffers: list[int] = []

    def fill(out: Bytes) -> bool:
        buffers.append(out.__array_interface__["data"][0])
        if len(buffers) == 2:
            raise DataError("damaged")
        return False

    for number in range(4):
        with cache.claimed([key(number)]) as claim:
            if number == 1:
                with pytest.raises(DataError, match="damaged"):
                    cache.load(claim, key(number), 100, fill=fill)
            else:
                assert cache.load(claim, key(number), 100, fill=fill) is not None
        check(cache)
    assert len(set(buffers)) == 1
    assert cache.figures().evictions == 2


def test_a_chunk_in_the_making_is_awaited_not_made_twice() -> None:
    """Who comes second is given what to wait for; it is set when the chunk is there, and when it will not be."""
    cache = ChunkCache(10**6)
    with cache.claimed([key(1), key(2), key(3)]) as first:
        assert first.owned == {key(1), key(2), key(3)}
        with cache.claimed([key(1), key(2), key(3)]) as second:
            assert (second.held, second.owned) == ({}, set())
            assert load(cache, first, key(1), 1)
            cache.give_up(first, key(2))
            assert [second.awaited[key(number)].is_set() for number in (1, 2, 3)] == [True, True, False]
    assert second.awaited[key(3)].is_set()
    with cache.claimed([key(1), key(2)]) as third:
        assert (set(third.held), third.owned) == ({key(1)}, {key(2)})
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
    for place in _places(WHOLE):
        checksums.record(place, stored(place))
    assert np.array_equal(read(verified(plain, checksums, str)), CUBE)
    assert step.count == 2 * CHUNKS
    assert np.array_equal(read(verified(plain, checksums, str)), CUBE)
    assert step.count == 2 * CHUNKS
    checksums.values[1, 1, 1] ^= 1
    with pytest.raises(DataError, match=r"cube, chunk \(1, 1, 1\): bytes of chunk"):
        read(verified(plain, checksums, str))


@pytest.mark.parametrize(
    "steps", [(Fletcher32(), DEFLATE), (DEFLATE, Crc32c()), (Crc32c(),)], ids=["copied", "direct", "checksum alone"]
)
def test_chunks_are_decoded_into_the_given_bytes(steps: tuple[Step, ...]) -> None:
    """Whatever the pipeline, the bytes come to lie where they were wanted, and scratch is the thread's own again."""
    pipeline = Pipeline(steps, NBYTES)
    data = np.random.default_rng(0).integers(0, 9, NBYTES).astype(np.uint8)
    written = data.tobytes()
    for step in steps:
        written = _written(step, written)
    stored_bytes, out = np.frombuffer(written, np.uint8), np.zeros(NBYTES, np.uint8)
    assert pipeline.decode_into(out, stored_bytes) is False
    assert np.array_equal(out, data)
    out[:] = 0
    assert np.array_equal(pipeline.decode(stored_bytes)[0], data)
    assert not out.any()


_CHECKSUMS: dict[type, Any] = {Fletcher32: imagecodecs.h5checksum_fletcher32, Crc32c: google_crc32c.value}


def _written(step: Step, data: bytes) -> bytes:
    if step is DEFLATE:
        return zlib.compress(data)
    return data + int(_CHECKSUMS[type(step)](data)).to_bytes(4, "little")


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
