"""Channels that alternate in memory are copied into rows of their own, whatever their number, width and place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.convert.encode.deinterleave import (
    MOST_CHANNELS,
    can_deinterleave,
    deinterleave_channels,
    deinterleave_into_chunks,
)
from voxload.convert.encode.encoding import gather_voxels
from voxload.errors import InternalError
from voxload.readers.protocol import Volume


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("channels", range(2, MOST_CHANNELS + 1))
def test_every_voxel_goes_to_its_channel(channels: int, width: int) -> None:
    """Whole lines, ends of lines and rows shorter than one, into a part of a chunk; what lies beside stays."""
    draw = np.random.default_rng(channels)
    for extent in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 67, 131, 200):
        source = draw.integers(0, 2 ** min(8 * width, 62), (5, 7, extent + 9, channels)).astype(f"u{width}")
        voxels = source[1:4, 2:6, 3 : 3 + extent].transpose(3, 0, 1, 2)
        chunk = np.zeros((channels, 4, 5, extent + 3), voxels.dtype)
        inside = chunk[:, :3, :4, :extent]
        assert can_deinterleave(inside, voxels)
        deinterleave_channels(inside, voxels)
        np.testing.assert_array_equal(inside, voxels)
        assert chunk.sum(dtype=object) == voxels.sum(dtype=object)


@settings(deadline=None, max_examples=100)
@given(
    shape=st.tuples(st.integers(1, 10), *[st.integers(1, 40)] * 3),
    order=st.permutations(range(4)),
    dtype=st.sampled_from(["u1", "<i2", "<f4", "<f8"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_order_of_axes_is_packed(shape: tuple[int, int, int, int], order: list[int], dtype: str, seed: int) -> None:
    """Packing equals numpy's copy, also of more channels than registers hold and of axes in any order."""
    stored = np.random.default_rng(seed).integers(0, 250, [shape[axis] for axis in order]).astype(dtype)
    voxels = stored.transpose(np.argsort(order))
    chunk = np.empty(shape, dtype)
    gather_voxels(chunk, voxels)
    np.testing.assert_array_equal(chunk, voxels)


def test_reversed_axes_are_left_to_others() -> None:
    """Strides that are negative, or channels that have gaps between them, are not what vectors can load."""
    stored = np.zeros((8, 8, 64, 4), np.int16)
    chunk = np.empty((4, 8, 8, 64), np.int16)
    assert can_deinterleave(chunk, stored.transpose(3, 0, 1, 2))
    assert not can_deinterleave(chunk, stored[::-1].transpose(3, 0, 1, 2))
    assert not can_deinterleave(chunk[:2], stored[..., ::2].transpose(3, 0, 1, 2))
    assert not can_deinterleave(chunk[:, ::-1], stored.transpose(3, 0, 1, 2))


@settings(deadline=None, max_examples=200)
@given(
    groups=st.tuples(st.integers(1, 3), st.integers(1, 5)),
    chunk=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 70)),
    counts=st.tuples(*[st.integers(1, 3)] * 3),
    order=st.sampled_from(["DHWC", "HDWC", "CDHW", "DCHW"]),
    flips=st.tuples(st.booleans(), st.booleans()),
    dtype=st.sampled_from(["u1", ">i2", "<f4", "<f8", "?"]),
    data=st.data(),
)
def test_voxels_go_to_their_chunks(
    groups: tuple[int, int],
    *,
    chunk: tuple[int, int, int],
    counts: tuple[int, int, int],
    order: str,
    flips: tuple[bool, bool],
    dtype: str,
    data: st.DataObject,
) -> None:
    """Any number of channels, in groups, at any address and across chunks; what lies beside stays, bit by bit."""
    channels, (d, h, w) = groups[0] * groups[1], chunk
    start = [data.draw(st.integers(0, n * wide - 1)) for n, wide in zip(counts, chunk, strict=True)]
    start[2] -= start[2] % w
    extents = [data.draw(st.integers(1, n * wide - lo)) for n, wide, lo in zip(counts, chunk, start, strict=True)]
    shape = {"C": channels, "D": extents[0], "H": extents[1], "W": extents[2]}
    size, draw = np.dtype(dtype).itemsize, np.random.default_rng(channels)
    held = draw.integers(0, 256, channels * int(np.prod(extents)) * size + 1, np.uint8)
    stored = held[1:].view(dtype).reshape([shape[axis] for axis in order])
    voxels = stored.transpose([order.index(axis) for axis in "CDHW"])
    voxels = voxels[:, :: -1 if flips[0] else 1, :: -1 if flips[1] else 1]
    room = draw.integers(0, 256, channels * int(np.prod(chunk) * np.prod(counts)) * size + 1, np.uint8)
    chunks = room[1:].view(dtype).reshape((groups[0], *counts, groups[1], *chunk))
    # The same array by its volume's axes: (groups, channels of one, D, H, W).
    expected = chunks.transpose(0, 4, 1, 5, 2, 6, 3, 7).reshape(channels, counts[0] * d, counts[1] * h, counts[2] * w)
    part = tuple(slice(lo, lo + extent) for lo, extent in zip(start, extents, strict=True))
    expected[(slice(None), *part)] = voxels
    deinterleave_into_chunks(chunks, voxels, (start[0], start[1], start[2]))
    found = chunks.transpose(0, 4, 1, 5, 2, 6, 3, 7).reshape(expected.shape)
    assert found.tobytes() == expected.tobytes()


def _voxels() -> Volume:
    return np.ones((4, 4, 8, 3), np.int16).transpose(3, 0, 1, 2)


@pytest.mark.parametrize(
    ("voxels", "start"),
    [
        (_voxels(), (-1, 0, 0)),
        (_voxels(), (5, 0, 0)),
        (_voxels(), (0, 1, 0)),
        (_voxels(), (0, 0, 4)),
        (_voxels(), (0, 0, 16)),
        (_voxels()[:, :, :, ::2], (0, 0, 0)),
        (_voxels()[:, :, :, ::-1], (0, 0, 0)),
        (_voxels()[::-1], (0, 0, 0)),
        (np.concatenate([_voxels()] * 2), (0, 0, 0)),
        (_voxels().astype(">i2"), (0, 0, 0)),
        (_voxels().astype("i4"), (0, 0, 0)),
        (_voxels().astype("c16"), (0, 0, 0)),
    ],
)
def test_what_has_no_room_is_refused(voxels: Volume, start: tuple[int, int, int]) -> None:
    """Nothing is written then, for there is nothing that would stop the core."""
    chunks = np.zeros((1, 2, 1, 2, 3, 4, 4, 8), np.int16)
    with pytest.raises(InternalError, match="have room for"):
        deinterleave_into_chunks(chunks, voxels, start)
    assert not chunks.any()


def test_chunks_that_cannot_be_written_are_refused() -> None:
    """Memory that is read-only, rows with gaps, and chunks of another type."""
    chunks = np.zeros((1, 1, 1, 1, 3, 4, 4, 16), np.int16)
    for wrong in (chunks.view(np.uint16), chunks[..., ::2], np.broadcast_to(chunks, chunks.shape)):
        with pytest.raises(InternalError, match="have room for"):
            deinterleave_into_chunks(wrong, _voxels(), (0, 0, 0))


def test_nothing_is_nothing() -> None:
    """Volumes without voxels, even of chunks that have none."""
    for shape in ((0, 4, 4, 8), (3, 0, 4, 8), (3, 4, 4, 0)):
        deinterleave_into_chunks(np.zeros((1, 1, 1, 1, *shape), np.int16), np.zeros(shape, np.int16), (0, 0, 0))


def test_voxels_of_another_byte_order_are_converted() -> None:
    """The core knows bits only, so they go another way."""
    stored = np.arange(4 * 4 * 64 * 3, dtype=">i2").reshape(4, 4, 64, 3)
    chunk = np.zeros((3, 4, 4, 64), "<i2")
    gather_voxels(chunk, stored.transpose(3, 0, 1, 2))
    np.testing.assert_array_equal(chunk, stored.transpose(3, 0, 1, 2))
