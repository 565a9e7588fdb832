"""Chunk and shard extents, tiles and projected memory."""

from __future__ import annotations

from itertools import permutations
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.convert.layout import CHUNK_BYTES, SHARD_BYTES, plan_layout
from voxload.convert.tiles import ENCODING_FACTOR, LIBRARY_BYTES, plan_tiling
from voxload.errors import UsageError

EXTENTS = st.integers(min_value=1, max_value=700)
ORDERS = st.sampled_from(list(permutations(range(3))))


@pytest.mark.parametrize("extent", [128, 256, 512, 1024])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_octants_are_whole_chunks_and_large_cubes_octants_whole_shards(
    extent: int, order: tuple[int, int, int]
) -> None:
    """Each rank of a (2, 2, 2) grid touches only chunks of its own and, above the shard limit, files of its own."""
    layout = plan_layout((4, extent, extent, extent), 2, is_sharded=True, slowest_first=order)
    assert layout.shards is not None
    assert all((extent // 2) % width == 0 for width in layout.chunks[1:])
    if 4 * extent**3 * 2 > SHARD_BYTES:
        assert all((extent // 2) % width == 0 for width in layout.shards[1:])
        assert layout.shards[1:][order[0]] == min(layout.shards[1:])
    else:
        assert layout.shards == layout.shape


def test_the_universe_layout() -> None:
    """A raw universe of 512^3 x 4 int16 gets 2 MiB chunks of all channels and 32 MiB shards, thin where it is slow."""
    layout = plan_layout((4, 512, 512, 512), 2, is_sharded=True, slowest_first=(2, 1, 0))
    assert layout.chunks == (4, 64, 64, 64)
    assert layout.shards == (4, 256, 256, 64)


@given(st.integers(1, 12), st.tuples(EXTENTS, EXTENTS, EXTENTS), st.sampled_from([1, 2, 4, 8]), ORDERS)
def test_layout_bounds(
    channels: int, spatial: tuple[int, int, int], itemsize: int, order: tuple[int, int, int]
) -> None:
    """Shards are whole chunks, channels divide evenly, and both keep their limits unless one part is larger."""
    layout = plan_layout((channels, *spatial), itemsize, is_sharded=True, slowest_first=order)
    assert layout.shards is not None
    assert all(shard % chunk == 0 for shard, chunk in zip(layout.shards, layout.chunks, strict=True))
    assert channels % layout.chunks[0] == 0
    assert layout.chunks[0] == 1 or prod(layout.chunks) * itemsize <= CHUNK_BYTES
    single = (channels, *layout.chunks[1:])
    assert prod(layout.shards) * itemsize <= SHARD_BYTES or layout.shards == single


def test_given_chunks_are_kept() -> None:
    """The caller's chunks stand, and shards are whole multiples of them."""
    layout = plan_layout((1, 100, 90, 80), 4, is_sharded=True, chunks=(30, 20, 7))
    assert layout.chunks == (1, 30, 20, 7)
    assert plan_layout((1, 100, 90, 80), 4, is_sharded=False, chunks=(30, 20, 7)).shards is None


def test_chunks_beyond_the_volume_are_refused() -> None:
    """A chunk larger than the volume, or than a codec takes, is a mistake of the call."""
    with pytest.raises(UsageError, match="extents up to the volume's, 8,8,8"):
        plan_layout((1, 8, 8, 8), 2, is_sharded=True, chunks=(8, 9, 8))
    with pytest.raises(UsageError, match="bytes a chunk"):
        plan_layout((1, 2048, 2048, 2048), 2, is_sharded=True, chunks=(2048, 2048, 2048))


@given(st.tuples(*[st.integers(1, 40)] * 3), st.tuples(*[st.integers(1, 9)] * 3), ORDERS, st.integers(0, 200_000))
def test_tiles_cover_every_voxel_once(
    spatial: tuple[int, int, int], chunks: tuple[int, int, int], order: tuple[int, int, int], spare: int
) -> None:
    """Units of all tiles cover the volume exactly once, start on the storage's grid, and keep the memory given."""
    widths = tuple(min(width, extent) for width, extent in zip(chunks, spatial, strict=True))
    layout = plan_layout(
        (2, *spatial), 2, is_sharded=True, slowest_first=order, chunks=(widths[0], widths[1], widths[2])
    )
    unit = prod(min(width, extent) for width, extent in zip(layout.unit, spatial, strict=True)) * 4
    allowed = LIBRARY_BYTES + (ENCODING_FACTOR + 1) * unit + spare
    tiling = plan_tiling(layout, 2, slowest_first=order, scratch_bytes=0, max_memory=allowed)
    seen = np.zeros(spatial, dtype=int)
    for tile in tiling.tiles():
        assert tile.size * 4 <= unit + spare
        for part in tiling.units(tile):
            seen[part.slices] += 1
            assert all(lo % width == 0 for lo, width in zip(part.start, layout.unit, strict=True))
    assert (seen == 1).all()


def test_ample_memory_gives_whole_planes() -> None:
    """A slab of whole planes of the slowest axis is read at once when the default memory allows it."""
    layout = plan_layout((4, 512, 512, 512), 2, is_sharded=True)
    tiling = plan_tiling(layout, 2, slowest_first=(0, 1, 2), scratch_bytes=0, max_memory=2**29)
    assert tiling.tile == (64, 512, 512)


def test_too_little_memory_is_refused_with_the_culprit() -> None:
    """The message gives projected and allowed bytes, the largest part, and what to ask for, which then works."""
    layout = plan_layout((4, 512, 512, 512), 2, is_sharded=True)
    with pytest.raises(UsageError, match=r"320 MiB projected, 160 MiB of it for encoding.*at most 256 MiB.*320MiB"):
        plan_tiling(layout, 2, slowest_first=(0, 1, 2), scratch_bytes=0, max_memory=2**28)
    assert plan_tiling(layout, 2, slowest_first=(0, 1, 2), scratch_bytes=0, max_memory=320 * 2**20).tile == (
        64,
        256,
        256,
    )
    with pytest.raises(UsageError, match="decoding the source's own chunks"):
        plan_tiling(layout, 2, slowest_first=(0, 1, 2), scratch_bytes=2**30, max_memory=2**29)
