"""Tiles hold every voxel of their chunks, whichever way they are read, and ask the source for each voxel once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.convert.staged import compare_chunks
from voxload.convert.encode import staging as staging_module
from voxload.convert.encode.staging import Staging, stage
from voxload.convert.plan.tiles import Tiling
from voxload.convert.sources.protocol import RawCube
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Volume

ORDERS = ["DHW", "HDW", "WHD", "DHWC", "HDWC", "CDHW", "DCHW", "CWHD", "DWHC"]


class _Source:
    """A cube in memory that counts how often its voxels are asked for."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.asked = np.zeros(volume.shape[1:], int)
        self.largest = 0

    def read_into(self, box: Box, out: Volume) -> None:
        out[:] = self.volume[(slice(None), *box.slices)]
        self.asked[box.slices] += 1
        self.largest = max(self.largest, out.nbytes)


def _check(staging: Staging, tiling: Tiling, width: int, source: _Source) -> list[bool]:
    """Compare every chunk with the cube, and tell of each whether it may be stored as it is."""
    found = compare_chunks(staging, tiling, width, source.volume)
    assert (source.asked == 1).all()
    return found


def _cube(order: AxisOrder, volume: Volume, *, scratch_bytes: int = 0) -> RawCube:
    shape = order.to_stored(volume.shape)
    return RawCube(Path("cube"), "full", shape=shape, order=order, dtype=volume.dtype, scratch_bytes=scratch_bytes)


@settings(deadline=None, max_examples=150)
@given(
    order=st.sampled_from(ORDERS),
    groups=st.sampled_from([(1, 1), (1, 3), (4, 1), (2, 2), (9, 1), (1, 10)]),
    chunk=st.tuples(*[st.integers(1, 9)] * 3),
    counts=st.tuples(*[st.integers(1, 4)] * 3),
    in_tile=st.tuples(*[st.integers(1, 4)] * 3),
    spare=st.tuples(*[st.integers(0, 2)] * 3),
    band=st.integers(1, 4000),
    dtype=st.sampled_from(["u1", "i2", "f4", "f8"]),
)
def test_chunks_are_the_cubes(
    order: str,
    groups: tuple[int, int],
    *,
    chunk: tuple[int, int, int],
    counts: tuple[int, int, int],
    in_tile: tuple[int, int, int],
    spare: tuple[int, int, int],
    band: int,
    dtype: str,
) -> None:
    """Cubes of any order of axes, whole chunks or not, tiles and bands of any size, channels in groups or not."""
    axes = AxisOrder(order)
    count, width = groups if axes.has_channels else (1, 1)
    d, h, w = (many * wide + more for many, wide, more in zip(counts, chunk, spare, strict=True))
    volume = np.random.default_rng(band).integers(0, 250, (count * width, d, h, w)).astype(dtype)
    cube = _cube(axes, volume)
    tile = tuple(min(many, n) * wide for many, n, wide in zip(in_tile, counts, chunk, strict=True))
    tiling = Tiling((d, h, w), chunk, (tile[0], tile[1], tile[2]), cube.spatial_order, 2, 0)
    source = _Source(volume)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging_module, "BAND_BYTES", band)
        _check(stage(cube, tiling, width, read_into=source.read_into), tiling, width, source)


@pytest.mark.parametrize("order", ["DHWC", "CDHW", "HDWC"])
def test_a_flat_cube_is_read_band_by_band(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its chunks lie in memory as they are stored, and no more of it is read at once than a band."""
    monkeypatch.setattr(staging_module, "BAND_BYTES", 4096)
    volume = np.random.default_rng(1).integers(0, 99, (4, 32, 32, 64)).astype(np.int16)
    cube = _cube(AxisOrder(order), volume)
    tiling = Tiling((32, 32, 64), (16, 16, 16), (16, 16, 64), cube.spatial_order, 2, 0)
    source = _Source(volume)
    assert all(_check(stage(cube, tiling, 4, read_into=source.read_into), tiling, 4, source))
    assert source.largest == 4096


def test_a_chunk_of_the_source_is_read_once() -> None:
    """Tiles of a cube that has chunks of its own are read whole: a band would decode them again."""
    volume = np.zeros((4, 32, 32, 64), np.int16)
    cube = _cube(AxisOrder("DHWC"), volume, scratch_bytes=1)
    tiling = Tiling((32, 32, 64), (16, 16, 16), (16, 32, 64), cube.spatial_order, 2, 0)
    source = _Source(volume)
    assert not any(_check(stage(cube, tiling, 4, read_into=source.read_into), tiling, 4, source))
    assert source.largest == volume.nbytes // 2
