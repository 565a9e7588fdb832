"""Codec: blocks of integers come back as they were, smaller; damage is found, not decoded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.cache.codec import Codec, pack, unpack
from voxload.errors import UsageError


@given(st.integers(0, 400), st.sampled_from("bhiq"), st.integers(0, 2**62), st.integers(0, 2**32))
def test_what_shrinks_comes_back(count: int, letter: str, largest: int, seed: int) -> None:
    """Any count of elements, of any width and range: packed smaller and back, or left alone."""
    dtype = np.dtype(letter)
    top = min(largest, np.iinfo(dtype).max - 1) + 1
    data = np.random.default_rng(seed).integers(0, top, count).astype(dtype).view(np.uint8)
    packed = np.empty_like(data)
    length = pack(data, dtype.itemsize, packed)
    assert length < max(1, len(data))
    if length:
        out = np.full_like(data, 0xA5)
        assert unpack(packed[:length], dtype.itemsize, out)
        assert np.array_equal(out, data)


@pytest.mark.parametrize("mebibytes", [1, 2.5])
def test_large_blocks(mebibytes: float) -> None:
    """Blocks of several pieces: counts shrink to less than a third; random bytes are left alone."""
    generator = np.random.default_rng(0)
    size = int(mebibytes * 2**20)
    counts = generator.poisson(1, size // 2).astype("i2").view(np.uint8)
    packed, out = np.empty_like(counts), np.empty_like(counts)
    length = pack(counts, 2, packed)
    assert 0 < length < size / 3
    assert unpack(packed[:length], 2, out)
    assert np.array_equal(out, counts)
    assert pack(generator.integers(0, 255, size, np.uint8), 2, packed) == 0


def test_a_piece_that_does_not_shrink_is_kept_as_it_is() -> None:
    """Noise in the middle of counts costs four bytes, not the block's gain."""
    generator = np.random.default_rng(0)
    data = np.zeros(3 * 2**20, np.uint8)
    data[2**20 : 2**21] = generator.integers(0, 255, 2**20, np.uint8)
    packed, out = np.empty_like(data), np.empty_like(data)
    length = pack(data, 2, packed)
    assert 2**20 < length < 1.1 * 2**20
    assert unpack(packed[:length], 2, out)
    assert np.array_equal(out, data)


@given(st.binary(max_size=300), st.integers(0, 200))
def test_anything_else_is_refused_or_decoded_within_bounds(content: bytes, size: int) -> None:
    """Random bytes do no harm: the answer is no, or all of `out` was filled."""
    frame = np.full(size + 2, 0x77, np.uint8)
    unpack(np.frombuffer(content, np.uint8), 2, frame[1:-1])
    assert frame[0] == frame[-1] == 0x77


def test_only_integers_are_packed() -> None:
    """Floats are left alone, and so is everything where no codec was asked for."""
    packs = Codec.parse("bitshuffle-lz4")
    assert [packs.suits(np.dtype(name)) for name in ("i2", "u1", "?", "f4", "f2")] == [True, True, True, False, False]
    assert not Codec.parse("none").suits(np.dtype("i2"))
    assert [Codec.numbered(codec.number) for codec in Codec] == list(Codec)
    assert Codec.numbered(9) is None
    with pytest.raises(UsageError, match=r"'zip'.*'none' or 'bitshuffle-lz4'"):
        Codec.parse("zip")
