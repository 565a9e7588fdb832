"""Voxels that are turned are numpy's, bit by bit, whatever their type, strides and address."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.data.transpose import copy_turned


@settings(deadline=None, max_examples=300)
@given(
    shape=st.tuples(st.integers(1, 3), *[st.sampled_from([1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65])] * 3),
    order=st.permutations((1, 2, 3)),
    flips=st.tuples(*[st.sampled_from([1, -1])] * 4),
    dtype=st.sampled_from(["u1", "<i2", ">i2", "<f4", "<f8", "<c16", "?"]),
    offset=st.integers(0, 3),
    spare=st.tuples(*[st.integers(0, 2)] * 4),
)
def test_any_turn_is_numpys(
    shape: tuple[int, int, int, int],
    order: list[int],
    *,
    flips: tuple[int, int, int, int],
    dtype: str,
    offset: int,
    spare: tuple[int, int, int, int],
) -> None:
    """Axes in any order and direction, into a part of an array at any address: what lies beside stays."""
    axes = (0, *order)
    size, draw = np.dtype(dtype).itemsize, np.random.default_rng(offset)
    bits = draw.integers(0, 256, int(np.prod(shape)) * size + offset, np.uint8)  # not a number, too
    source = bits[offset:].view(dtype).reshape(shape)
    whole = [shape[axis] + more for axis, more in zip(axes, spare, strict=True)]
    found = draw.integers(0, 256, int(np.prod(whole)) * size + offset, np.uint8)
    expected = found.copy()
    for room in (found, expected):
        inside = room[offset:].view(dtype).reshape(whole)[tuple(slice(shape[axis]) for axis in axes)]
        target = inside.transpose(np.argsort(axes))[tuple(slice(None, None, flip) for flip in flips)]
        if room is found:
            copy_turned(target, source)
        else:
            np.copyto(target, source)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("axes", [(0, 3, 2, 1), (0, 1, 3, 2), (0, 3, 1, 2)])
def test_threads_share_large_volumes(axes: tuple[int, int, int, int]) -> None:
    """More than a mebibyte: shares meet without a gap."""
    source = np.random.default_rng(0).integers(0, 2**16, (2, 100, 130, 140), np.uint16)
    out = np.zeros([source.shape[axis] for axis in axes], np.uint16)
    copy_turned(out.transpose(np.argsort(axes)), source)
    np.testing.assert_array_equal(out, source.transpose(axes))


def test_a_volume_may_be_turned_into_itself() -> None:
    """The core would read what it has written already."""
    volume = np.random.default_rng(0).integers(0, 250, (1, 40, 40, 40)).astype(np.uint8)
    expected = volume.transpose(0, 3, 2, 1).copy()
    copy_turned(volume.transpose(0, 3, 2, 1), volume)
    np.testing.assert_array_equal(volume, expected)


def test_what_the_core_does_not_look_at_is_numpys() -> None:
    """Other types are converted or refused, other shapes and memory that is read-only are refused."""
    source = np.arange(64 * 64, dtype="<i2").reshape(1, 1, 64, 64)
    for dtype in (">i2", "i4", "O"):
        out = np.zeros((1, 1, 64, 64), dtype)
        copy_turned(out.swapaxes(2, 3), source)
        np.testing.assert_array_equal(out, source.swapaxes(2, 3))
    with pytest.raises(TypeError):
        copy_turned(np.zeros((1, 1, 64, 64), "f2").swapaxes(2, 3).view("u2"), source.view("f2"))
    with pytest.raises(ValueError, match="broadcast"):
        copy_turned(np.zeros((1, 1, 64, 63), "<i2").swapaxes(2, 3), source)
    with pytest.raises(ValueError, match="read-only"):
        copy_turned(np.broadcast_to(source, source.shape).swapaxes(2, 3), source.copy())
