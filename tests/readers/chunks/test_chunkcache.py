"""The cache of decoded chunks: which of them it keeps, in which memory, and who waits for whom."""

from __future__ import annotations

import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import google_crc32c
import imagecodecs
import numpy as np
import pytest

from tests.readers.counted_cube import NBYTES, check, identities, never
from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers import chunk_cache, set_chunk_cache
from voxload.readers.chunks.chunkcache import ENTRY_BYTES, ChunkCache, Claim, Identity, Key
from voxload.readers.chunks.chunked import ChunkedVolume, Fetched
from voxload.readers.decode.codecs import DEFLATE, Crc32c, Fletcher32, Pipeline, Step
from voxload.readers.pasting.pasteplan import ChunkShape
from voxload.readers.scratch import Bytes

pytestmark = pytest.mark.usefixtures("chunk_cache_off")


@pytest.mark.long
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
        source.read(Box((number * extent, 0, 0), (number * extent + 1, 1, 1)), out, fill=never)
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
