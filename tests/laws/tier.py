"""The laws of a Tier: what every implementation of voxload.cache.protocol.Tier must pass.

A test gives `check_tier` a function that makes an empty tier of a capacity in bytes. Models are plain dicts of arrays.
Faults that need to know where a tier keeps its bytes, and processes that are killed, are in the tests of each tier.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.cache.protocol import BlockKey, Tier
from voxload.geometry import Boundary, Box

Array = npt.NDArray[Any]
Make = Callable[[int], Tier]

DTYPES = ("i1", "u1", "<i2", ">i2", "u4", "i8", "f2", "f4", "f8", "?", ml_dtypes.bfloat16)
SHAPES = ((1, 4, 5, 6), (2, 1, 1, 1), (1, 0, 3, 3), (1, 7, 1, 3), (3, 16, 16, 16))
PLENTY = 2**20
"""Bytes that hold all blocks of a law but those of the capacity."""


def key_of(name: str, *, data: str = "data") -> BlockKey:
    """Return the key of a block that is told from others by its name."""
    return BlockKey(data, name, "full", Box((0, -1, 0), (4, 5, 6)), Boundary.PERIODIC)


def block_of(seed: int, shape: Sequence[int] = (1, 8, 9, 10), dtype: Any = "i2") -> Array:
    """Return a block of a seed: small counts, as a codec packs, or random bits where the seed is odd."""
    wanted, generator = np.dtype(dtype), np.random.default_rng(seed)
    count = int(np.prod(shape))
    if wanted.kind == "b" or seed % 2 == 0:
        return generator.poisson(2, shape).astype(wanted)
    return np.frombuffer(generator.bytes(count * wanted.itemsize), wanted).reshape(shape).copy()


def same_bits(found: Array, expected: Array) -> bool:
    """Tell whether two arrays are equal to the bit."""
    return found.shape == expected.shape and found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def fresh(block: Array) -> Array:
    """Return an array like a block, with other bytes in it."""
    return np.frombuffer(b"\xa5" * block.nbytes, np.uint8).copy().view(block.dtype).reshape(block.shape)


def get(tier: Any, key: BlockKey, like: Array) -> Array | None:
    """Return the block of a key, as an array of the type and shape of `like`; None where the tier answers no."""
    out = fresh(like)
    return out if tier.get_into(key, out) else None


def check_tier(make: Make) -> None:
    """Check every law."""
    check_blocks(make)
    check_mismatch(make)
    check_strides(make)
    check_model(make)
    check_capacity(make)
    check_no_reference_kept(make)
    check_threads(make)


def check_blocks(make: Make) -> None:
    """Check rule 1: blocks of any type and shape come back bit for bit, and nothing else comes."""
    with closing(make(PLENTY)) as tier:
        blocks = {
            key_of(f"{shape} {dtype}"): block_of(seed, shape, dtype)
            for shape in SHAPES
            for seed, dtype in enumerate(DTYPES)
        }
        # Of a file whose name is no UTF-8.
        blocks |= {
            key_of(name, data=f"/data/{name}"): block_of(seed) for seed, name in enumerate(("a\udcff", "a\udcc3"))
        }
        assert isinstance(tier, Tier)
        for key, block in blocks.items():
            assert not tier.holds(key)
            assert get(tier, key, block) is None
            assert tier.put(key, block)
            assert tier.put(key, block)
        for key, block in blocks.items():
            assert tier.holds(key)
            found = get(tier, key, block)
            assert found is not None
            assert same_bits(found, block)
        for key in blocks:
            tier.drop(key)
            tier.drop(key)
            assert not tier.holds(key)


def check_mismatch(make: Make) -> None:
    """Check rule 1: who asks for another type or shape gets no, and the block stays."""
    with closing(make(PLENTY)) as tier:
        key, block = key_of("a"), block_of(0, (1, 4, 6, 8))
        tier.put(key, block)
        for other in (
            block.view(np.uint16),
            block.view(">i2"),
            block.reshape(1, 6, 4, 8),
            block.reshape(4, 6, 8),
            block[:, :3],
            np.zeros((1, 4, 6, 9), "i2"),
            np.zeros((64, 64, 64), "i2"),
            np.zeros((1, 4, 6, 1), "i2"),
            np.zeros((1, 0, 6, 8), "i2"),
        ):
            assert get(tier, key, np.ascontiguousarray(other)) is None
            assert tier.holds(key)
        assert get(tier, key_of("a", data="other"), block) is None
        found = get(tier, key, block)
        assert found is not None
        assert same_bits(found, block)


def check_strides(make: Make) -> None:
    """Check rule 4: what is stored, and what is filled, may be views; neighbours are not touched."""
    with closing(make(PLENTY)) as tier:
        frame = block_of(2, (2, 10, 12, 14))
        view = frame[1:, 2:8, ::2, ::-1].transpose(0, 3, 2, 1)
        assert tier.put(key_of("a"), view)
        around = np.full((3, 14, 9, 8), 77, "i2")
        out = around[1:2, ::-1, 1:7, 1:7]
        assert tier.get_into(key_of("a"), out)
        assert np.array_equal(out, view)
        assert (around == 77).sum() == around.size - out.size + (out == 77).sum()


def check_model(make: Make, *, examples: int = 20) -> None:
    """Check rules 1 to 3: any sequence of calls behaves like a dict that may refuse, within the capacity."""
    sizes = st.integers(1, 12)
    calls = st.lists(st.tuples(st.sampled_from(("put", "get", "drop")), st.integers(0, 7), sizes), max_size=40)

    @settings(max_examples=examples)
    @given(calls, st.integers(PLENTY // 32, PLENTY // 16))
    def law(steps: list[tuple[str, int, int]], capacity: int) -> None:
        with closing(make(capacity)) as tier:
            model: dict[int, Array] = {}
            empty = tier.used
            for call, number, size in steps:
                key, block = key_of(str(number)), block_of(number, (1, size, 24, 24))
                if call == "put":
                    was_empty = not model
                    if tier.put(key, block):
                        model.setdefault(number, block)
                    else:
                        assert number not in model
                        assert not was_empty
                elif call == "drop":
                    tier.drop(key)
                    model.pop(number, None)
                for kept, expected in model.items():
                    found = get(tier, key_of(str(kept)), expected)
                    assert found is not None
                    assert same_bits(found, expected)
                assert all(tier.holds(key_of(str(n))) == (n in model) for n in range(8))
                assert tier.used <= tier.capacity == capacity
            for number in range(8):
                tier.drop(key_of(str(number)))
            assert tier.used == empty

    law()


def check_capacity(make: Make) -> None:
    """Check rule 3: what does not fit is refused at once, and fits when room was made."""
    with closing(make(PLENTY // 8)) as tier:
        blocks = [block_of(2 * seed + 1, (1, 16, 16, 16)) for seed in range(40)]
        kept = []
        for number, block in enumerate(blocks):
            if tier.put(key_of(str(number)), block):
                kept.append(number)
            assert tier.used <= tier.capacity
        assert 5 < len(kept) < len(blocks)
        assert kept == list(range(len(kept)))
        assert not tier.put(key_of("giant"), np.zeros((1, 2**9, 2**9), "f8"))
        tier.drop(key_of("3"))
        assert tier.put(key_of("last"), blocks[-1])
        assert not tier.put(key_of("one too many"), blocks[-1])


def check_no_reference_kept(make: Make) -> None:
    """Check rule 4: nobody holds `out` or `block` once the call is over."""

    class Watched(np.ndarray[Any, np.dtype[Any]]):
        """An array that can be watched by a weak reference."""

    with closing(make(PLENTY)) as tier:
        block = block_of(0).view(Watched)
        out = fresh(block).view(Watched)
        watchers = [weakref.ref(block), weakref.ref(out)]
        tier.put(key_of("a"), block)
        tier.get_into(key_of("a"), out)
        del block, out
        gc.collect()
        assert [watcher() for watcher in watchers] == [None, None]


def check_threads(make: Make, *, threads: int = 4, calls: int = 60) -> None:
    """Check rule 4: many threads at once, on few keys and in little room, get right bytes or no."""
    blocks = [block_of(seed, (1, 5 + 7 * seed, 16, 16)) for seed in range(6)]
    keys = [key_of(str(number)) for number in range(len(blocks))]
    with closing(make(PLENTY // 16)) as tier:
        empty = tier.used

        def work(seed: int) -> int:
            draw, hits = random.Random(seed), 0
            for _ in range(calls):
                number = draw.randrange(len(keys))
                action = draw.choice(("put", "get", "get", "drop"))
                if action == "put":
                    tier.put(keys[number], blocks[number])
                elif action == "drop":
                    tier.drop(keys[number])
                else:
                    found = get(tier, keys[number], blocks[number])
                    assert found is None or same_bits(found, blocks[number])
                    hits += found is not None
                assert tier.used <= tier.capacity
            return hits

        with ThreadPoolExecutor(threads) as pool:
            assert sum(pool.map(work, range(threads))) > 0
        for key in keys:
            tier.drop(key)
        assert tier.used == empty
