"""Channels that alternate in memory are copied into rows of their own, whatever their number, width and place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.convert.encode.deinterleave import MOST_CHANNELS, can_deinterleave, deinterleave_channels
from voxload.convert.encode.encoding import gather_voxels

SHORT = {(2, 2), (3, 4), (4, 1), (5, 8), (MOST_CHANNELS, 2)}
"""Channels and widths of the short run: each is compiled for itself."""


@pytest.mark.parametrize(
    ("channels", "width"),
    [
        pytest.param(channels, width, marks=() if (channels, width) in SHORT else pytest.mark.long)
        for channels in range(2, MOST_CHANNELS + 1)
        for width in (1, 2, 4, 8)
    ],
)
def test_every_voxel_goes_to_its_channel(channels: int, width: int) -> None:
    """Whole lines, ends of lines and rows shorter than one, into a part of a chunk; what lies beside stays."""
    draw = np.random.default_rng(channels)
    for extent in (1, 5, 64, 67, 131):
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
