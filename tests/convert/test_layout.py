"""Chunk and shard extents, tiles and projected memory."""

from __future__ import annotations

from itertools import permutations
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.convert.layout import CHUNK_BYTES, FILE_AIM, FILE_BYTES, Layout, Readers, Wishes, plan_layout
from voxload.convert.plan.tiles import LIBRARY_BYTES, Budget, Demand, jobs_in_memory, plan_tiling
from voxload.errors import UsageError
from voxload.geometry import Boundary, Halo, chunks_touched, pieces
from voxload.grid import ProcessGrid

EXTENTS = st.integers(min_value=1, max_value=700)
ORDERS = st.sampled_from(list(permutations(range(3))))
UNIVERSE = (4, 512, 512, 512)


def _amplification(layout: Layout, spatial: tuple[int, int, int], halo: int, boundary: Boundary) -> float:
    """Return the voxels of touched chunks over those of blocks with halo, over all ranks, as ``voxload info`` does."""
    read = needed = 0
    for rank in range(prod(spatial)):
        grid = ProcessGrid(spatial=spatial, world_size=prod(spatial), rank=rank)
        box = grid.block(layout.shape[1:]).expand(Halo.parse(halo))
        parts = [part.source for part in pieces(box, layout.shape[1:], boundary)]
        needed += box.size
        read += sum(chunks_touched(part, layout.chunks[1:]).size for part in parts) * prod(layout.chunks[1:])
    return read / needed


@pytest.mark.parametrize("extent", [128, 256, 512, 1024])
def test_octants_are_whole_chunks(extent: int) -> None:
    """Each rank of a (2, 2, 2) grid touches only chunks of its own, whether it is named or not."""
    named = Wishes(readers=Readers((2, 2, 2), Halo.parse(0)))
    for wishes in (Wishes(), named):
        layout = plan_layout((4, extent, extent, extent), 2, is_sharded=True, wishes=wishes)
        assert _amplification(layout, (2, 2, 2), 0, Boundary.ZERO) == 1.0


@pytest.mark.parametrize("boundary", list(Boundary))
def test_a_halo_costs_little(boundary: Boundary) -> None:
    """For a (2, 2, 2) grid with a halo of one voxel, chunks of a universe are cut so that little more is decoded."""
    wishes = Wishes(readers=Readers((2, 2, 2), Halo.parse(1), boundary))
    layout = plan_layout(UNIVERSE, 2, is_sharded=True, wishes=wishes)
    limit = 1.15 if boundary is Boundary.ZERO else 1.5  # a border beyond which the other side follows
    assert _amplification(layout, (2, 2, 2), 1, boundary) <= limit


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("ratio", [1.0, 2.5, 4.0])
@pytest.mark.parametrize("extent", [256, 512, 1024, 2048])
@pytest.mark.parametrize("readers", [None, Readers((2, 2, 2), Halo.parse(1)), Readers((4, 4, 2), Halo.parse(0))])
def test_files_are_as_large_as_asked(extent: int, ratio: float, readers: Readers | None) -> None:
    """Files of large cubes lie within the bounds, however well the voxels compress, if the estimate is right."""
    shape = (4, extent, extent, extent)
    wishes = Wishes(readers=readers, file_bytes=round(FILE_AIM * ratio))
    layout = plan_layout(shape, 2, is_sharded=True, wishes=wishes)
    assert layout.shards is not None
    whole = prod(shape) * 2 / ratio
    most = prod(layout.shards) * 2 / ratio
    assert most <= FILE_BYTES[1]
    assert most >= min(FILE_BYTES[0], whole)


@given(st.integers(1, 12), st.tuples(EXTENTS, EXTENTS, EXTENTS), st.sampled_from([1, 2, 4, 8]))
def test_layout_bounds(channels: int, spatial: tuple[int, int, int], itemsize: int) -> None:
    """Shards are whole chunks, and channels divide evenly and share a chunk only below its limit."""
    layout = plan_layout((channels, *spatial), itemsize, is_sharded=True)
    assert layout.shards is not None
    assert all(shard % chunk == 0 for shard, chunk in zip(layout.shards, layout.chunks, strict=True))
    assert channels % layout.chunks[0] == 0
    assert layout.chunks[0] == 1 or prod(layout.chunks) * itemsize <= CHUNK_BYTES
    assert layout.shards[0] == channels


@given(st.tuples(*[st.integers(1, 130)] * 3), st.integers(1, 9), st.booleans())
def test_samples_that_share_a_volume_are_whole_chunks(
    window: tuple[int, int, int], count: int, has_readers: bool
) -> None:
    """Chunks divide the extents of the samples, so that no chunk is of two samples."""
    readers = Readers((1, 1, 1), Halo.parse(1)) if has_readers else None
    shape = (1, window[0] * count, *window[1:])
    layout = plan_layout(shape, 4, is_sharded=True, wishes=Wishes(readers=readers, window=window))
    assert all(extent % width == 0 for extent, width in zip(window, layout.chunks[1:], strict=True))
    if not has_readers:  # the defaults suit two blocks along each axis: halves are whole chunks
        halves = [extent // 2 for extent in window]
        assert all(
            half % width == 0
            for extent, half, width in zip(window, halves, layout.chunks[1:], strict=True)
            if extent % 2 == 0 and half >= 8
        )


def test_given_chunks_are_kept() -> None:
    """The caller's chunks stand, and shards are whole multiples of them."""
    wishes = Wishes(chunks=(30, 20, 7))
    layout = plan_layout((1, 100, 90, 80), 4, is_sharded=True, wishes=wishes)
    assert layout.chunks == (1, 30, 20, 7)
    assert plan_layout((1, 100, 90, 80), 4, is_sharded=False, wishes=wishes).shards is None


def test_chunks_that_do_not_fit_are_refused() -> None:
    """A chunk larger than the volume, or than a codec takes, or that cuts samples, is a mistake of the call."""
    with pytest.raises(UsageError, match="extents up to the volume's, 8,8,8"):
        plan_layout((1, 8, 8, 8), 2, is_sharded=True, wishes=Wishes(chunks=(8, 9, 8)))
    with pytest.raises(UsageError, match="bytes a chunk"):
        plan_layout((1, 2048, 2048, 2048), 2, is_sharded=True, wishes=Wishes(chunks=(2048, 2048, 2048)))
    with pytest.raises(UsageError, match="divisors of the samples' extents, 8,8,8"):
        plan_layout((1, 16, 8, 8), 2, is_sharded=True, wishes=Wishes(chunks=(3, 8, 8), window=(8, 8, 8)))


@given(
    spatial=st.tuples(*[st.integers(1, 40)] * 3),
    chunks=st.tuples(*[st.integers(1, 9)] * 3),
    order=ORDERS,
    spare=st.integers(0, 200_000),
    is_sequential=st.booleans(),
)
def test_tiles_cover_every_voxel_once(
    spatial: tuple[int, int, int],
    chunks: tuple[int, int, int],
    order: tuple[int, int, int],
    *,
    spare: int,
    is_sequential: bool,
) -> None:
    """Chunks of all tiles cover the volume exactly once, lie on the storage's grid, and keep the memory given."""
    widths = tuple(min(width, extent) for width, extent in zip(chunks, spatial, strict=True))
    layout = plan_layout((2, *spatial), 2, is_sharded=True, wishes=Wishes(chunks=(widths[0], widths[1], widths[2])))
    least = list(widths)
    if is_sequential:
        for axis in order[1:]:
            least[axis] = spatial[axis]
    held = prod(least) * 4
    allowed = LIBRARY_BYTES + jobs_in_memory(1) * prod(layout.chunks) * 2 + held + spare
    demand = Demand(spatial, order, is_sequential=is_sequential)
    tiling = plan_tiling(layout, 2, demand=demand, budget=Budget(allowed))
    assert tiling.projected <= allowed
    seen = np.zeros(spatial, dtype=int)
    for tile in tiling.tiles():
        assert tiling.buffers * tile.size * 4 <= held + spare
        if is_sequential:
            assert all(tile.shape[axis] == spatial[axis] for axis in order[1:])
        for part in tiling.chunks(tile):
            seen[part.slices] += 1
            assert all(lo % width == 0 for lo, width in zip(part.start, layout.chunks[1:], strict=True))
    assert (seen == 1).all()


def test_ample_memory_gives_what_the_source_is_read_best_by() -> None:
    """Of chunks of its own, slabs of whole planes are read, two at once; of a flat source less, and three."""
    layout = plan_layout(UNIVERSE, 2, is_sharded=True)
    flat, chunked = Demand((512, 512, 512), (0, 1, 2)), Demand((512, 512, 512), (0, 1, 2), scratch_bytes=2**20)
    found = [plan_tiling(layout, 2, demand=demand, budget=Budget(2**30, 2)) for demand in (flat, chunked)]
    assert [(tiling.tile, tiling.buffers) for tiling in found] == [((64, 64, 512), 3), ((64, 512, 512), 2)]


@pytest.mark.parametrize(("threads", "chunks"), [(1, 4), (2, 4), (4, 2), (8, 1), (64, 1)])
def test_jobs_are_large_where_each_thread_still_finds_two(threads: int, chunks: int) -> None:
    """Of the tiles that are not being read: 32 MiB of a flat source; with little memory, chunks are sent one by one."""
    layout, demand = plan_layout(UNIVERSE, 2, is_sharded=True), Demand((512, 512, 512), (0, 1, 2))
    assert plan_tiling(layout, 2, demand=demand, budget=Budget(2**31, threads)).job == chunks
    little = LIBRARY_BYTES + (jobs_in_memory(threads) + 1) * prod(layout.chunks) * 2
    assert plan_tiling(layout, 2, demand=demand, budget=Budget(little, threads)).job == 1


def test_too_little_memory_is_refused_with_the_culprit() -> None:
    """The message gives projected and allowed bytes, the largest part, and what to ask for, which then works."""
    layout = plan_layout(UNIVERSE, 2, is_sharded=True)
    demand = Demand((512, 512, 512), (0, 1, 2))
    with pytest.raises(UsageError, match=r"projected, 304 MiB of it for the interpreter.*at most 128 MiB.*318MiB"):
        plan_tiling(layout, 2, demand=demand, budget=Budget(2**27))
    assert plan_tiling(layout, 2, demand=demand, budget=Budget(318 * 2**20)).tile == (64, 64, 64)
    with pytest.raises(UsageError, match="decoding the source's own chunks"):
        plan_tiling(layout, 2, demand=Demand((512, 512, 512), (0, 1, 2), 2**30), budget=Budget(2**29))
    wide, stream = (
        plan_layout((64, 512, 512, 512), 2, is_sharded=True),
        Demand((512,) * 3, (0, 1, 2), is_sequential=True),
    )
    with pytest.raises(UsageError, match="of it for the voxels read at once"):
        plan_tiling(wide, 2, demand=stream, budget=Budget(2**29))
