"""The laws of Peers: what every implementation of voxload.cache.protocol.Peers must pass.

A test starts the owner of a memory tier in another process, connects to it, and calls `check_peers` with the peers and
an `Owner`, through which the kit stores blocks there. What must be right is compared with the arrays that were stored.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.cache.memory.layout import HEAD, Layout
from voxload.cache.protocol import Answer, BlockKey, Peers
from voxload.geometry import Boundary, Box

Array = npt.NDArray[Any]

DTYPES = tuple(np.dtype(word) for word in ("i1", "u2", "i4", "u8", "f2", "f4", "f8", "?", ml_dtypes.bfloat16))
EXAMPLES = 15 if os.environ.get("VOXLOAD_TEST_THOROUGH") == "1" else 5
SLACK = 600.0
"""Seconds that a loaded machine may add to what is promised."""

_numbers = count()


class Owner(Protocol):
    """A process that has a memory tier; every call returns when the owner has done it."""

    arena: str
    """File of its memory tier."""

    def put(self, key: BlockKey, block: Array) -> bool:
        """Store a block."""
        ...

    def put_soon(self, key: BlockKey, block: Array) -> None:
        """Return at once, and store the block a moment later."""
        ...

    def drop(self, key: BlockKey) -> None:
        """Forget a block."""
        ...


class Line(NamedTuple):
    """What the laws are about: peers, one group of theirs, and its owner."""

    peers: Peers
    group: int
    owner: Owner

    def get(self, key: BlockKey, like: Array, *, wait: float = 0.0) -> tuple[Answer, Array]:
        """Fetch a block into a fresh array that held other bytes before."""
        out = np.frombuffer(b"\xa5" * like.nbytes, np.uint8).copy().view(like.dtype).reshape(like.shape)
        return self.peers.get_into(self.group, key, out, wait=wait), out


def fresh_key(shape: tuple[int, ...]) -> BlockKey:
    """Return a key that nobody has used."""
    spatial = shape[1:]
    return BlockKey("data", f"sample {next(_numbers)}", "x", Box((0,) * len(spatial), spatial), Boundary.PERIODIC)


def random_block(shape: tuple[int, ...], dtype: np.dtype[Any] | str = "i2", seed: int = 0) -> Array:
    """Return an array of random bits, NaNs included."""
    wanted, generator = np.dtype(dtype), np.random.default_rng([seed, *shape])
    if wanted.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    return np.frombuffer(generator.bytes(int(np.prod(shape)) * wanted.itemsize), wanted).reshape(shape).copy()


def same_bits(found: Array, expected: Array) -> bool:
    """Tell whether two arrays are equal to the bit."""
    return found.shape == expected.shape and found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def damage(arena: str, key: BlockKey) -> None:
    """Flip one bit of a block in the file of a memory tier, behind its owner's back."""
    path = Path(arena)
    with path.open("r+b", buffering=0) as file:
        layout = Layout.parse(file.read(HEAD.itemsize), path.stat().st_size, arena)
        window = layout.window(key.digest)
        rows = os.pread(file.fileno(), window.stop - window.start, window.start)
        row = layout.find(key.digest, np.frombuffer(rows, np.uint8))
        assert row is not None
        middle = (row.span.start + row.span.stop) // 2
        os.pwrite(file.fileno(), bytes([os.pread(file.fileno(), 1, middle)[0] ^ 0x10]), middle)


def check_peers(line: Line) -> None:
    """Check every law on an owner that is well."""
    check_bytes(line)
    check_large_block(line)
    check_array_in_pieces(line)
    check_absence(line)
    check_form(line)
    check_damage(line)
    check_arrival(line)
    check_threads(line)


def check_bytes(line: Line) -> None:
    """Check that any block comes back bit for bit, an empty one too."""
    shapes = st.tuples(st.integers(1, 3), st.integers(0, 9), st.integers(1, 9), st.integers(1, 9))

    @settings(max_examples=EXAMPLES)
    @given(shape=shapes, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
    def law(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> None:
        block, key = random_block(shape, dtype, seed), fresh_key(shape)
        assert line.owner.put(key, block)
        answer, out = line.get(key, block)
        assert answer is Answer.GOT
        assert same_bits(out, block)
        line.owner.drop(key)

    law()


def check_large_block(line: Line) -> None:
    """Check a block that no transport sends in one piece."""
    block = random_block((3, 95, 97, 99))
    key = fresh_key(block.shape)
    assert line.owner.put(key, block)
    for _ in range(3):
        answer, out = line.get(key, block)
        assert answer is Answer.GOT
        assert same_bits(out, block)
    line.owner.drop(key)


def check_array_in_pieces(line: Line) -> None:
    """Check that an array whose bytes do not lie in one piece is filled, and what lies between is left alone."""
    block = random_block((2, 5, 6, 7))
    key = fresh_key(block.shape)
    assert line.owner.put(key, block)
    whole = np.full((2, 5, 6, 14), 77, block.dtype)
    assert line.peers.get_into(line.group, key, whole[..., ::2], wait=0) is Answer.GOT
    assert same_bits(np.ascontiguousarray(whole[..., ::2]), block)
    assert (whole[..., 1::2] == 77).all()
    line.owner.drop(key)


def check_absence(line: Line) -> None:
    """Check that a block that is not there, or not any more, is ABSENT: at once, or when the wait is over."""
    block = random_block((1, 4, 4, 4))
    key = fresh_key(block.shape)
    assert line.get(key, block)[0] is Answer.ABSENT
    begin = time.monotonic()
    assert line.get(key, block, wait=0.15)[0] is Answer.ABSENT
    assert 0.15 <= time.monotonic() - begin < 0.15 + SLACK
    assert line.owner.put(key, block)
    assert line.get(key, block)[0] is Answer.GOT
    line.owner.drop(key)
    assert line.get(key, block)[0] is Answer.ABSENT


def check_form(line: Line) -> None:
    """Check that a block of another type or shape is WRONG, and goes on to be there for who asks rightly."""
    block = random_block((2, 4, 6, 3))
    key = fresh_key(block.shape)
    assert line.owner.put(key, block)
    for like in (
        block.view(np.uint16),
        block.view(np.float16),
        block.reshape(2, 6, 4, 3),
        block[:1],
        block.view(np.int8),
    ):
        assert line.get(key, like)[0] is Answer.WRONG
    assert same_bits(line.get(key, block)[1], block)
    line.owner.drop(key)


def check_damage(line: Line) -> None:
    """Check that a block of which the owner's memory lost a bit is WRONG, and can be stored and had again."""
    block = random_block((2, 30, 30, 30))
    key = fresh_key(block.shape)
    assert line.owner.put(key, block)
    damage(line.owner.arena, key)
    assert line.get(key, block)[0] is Answer.WRONG
    line.owner.drop(key)
    assert line.owner.put(key, block)
    answer, out = line.get(key, block)
    assert answer is Answer.GOT
    assert same_bits(out, block)
    line.owner.drop(key)


def check_arrival(line: Line) -> None:
    """Check that a block that comes during the wait is had, without waiting for the wait's end."""
    block = random_block((2, 8, 8, 8))
    key = fresh_key(block.shape)
    line.owner.put_soon(key, block)
    begin = time.monotonic()
    answer, out = line.get(key, block, wait=2 * SLACK)
    assert answer is Answer.GOT
    assert same_bits(out, block)
    assert time.monotonic() - begin < SLACK
    line.owner.drop(key)


def check_threads(line: Line) -> None:
    """Check that many threads get each their own block."""
    blocks = [random_block((1, 40, 41, 42), seed=seed) for seed in range(6)]
    keys = [fresh_key(block.shape) for block in blocks]
    missing = fresh_key(blocks[0].shape)
    for key, block in zip(keys, blocks, strict=True):
        assert line.owner.put(key, block)
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for turn in range(6):
            place = (number + turn) % len(blocks)
            answer, out = line.get(keys[place], blocks[place])
            assert answer is Answer.GOT
            assert same_bits(out, blocks[place])
            assert line.get(missing, blocks[place])[0] is Answer.ABSENT

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, number) for number in range(8)]:
            done.result()
    for key in keys:
        line.owner.drop(key)


def check_lost(line: Line, timeout: float) -> None:
    """Check that an owner that is gone, or hangs, is LOST within the time-out, however long the call would wait."""
    like = random_block((1, 4, 4, 4))
    for wait in (0.0, 0.2):
        begin = time.monotonic()
        assert line.get(fresh_key(like.shape), like, wait=wait)[0] is Answer.LOST
        assert time.monotonic() - begin < timeout + wait + SLACK


def check_nothing_written_later(
    line: Line, *, key: BlockKey, like: Array, hold: Callable[[], None], release: Callable[[], None]
) -> None:
    """Check that a call that gave up writes nothing more: `hold` stops the owner, `release` lets it go on."""
    hold()
    answer, out = line.get(key, like)
    assert answer is Answer.LOST
    left = out.tobytes()
    release()
    other = random_block((1, 8, 8, 8))
    assert line.owner.put(fresh_key(other.shape), other)
    while (again := line.get(key, like, wait=1.0)[0]) is Answer.LOST:
        pass  # the time-out is short, and the machine may be busy
    assert again is Answer.GOT
    assert out.tobytes() == left
