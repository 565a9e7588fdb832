"""Flat files are read and parted in one call: every voxel is where it belongs, and what fails is told as ever."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.convert.staged import compare_chunks
from voxload.convert.encode import staging as staging_module
from voxload.convert.encode.bands import BandReader, can_read_bands
from voxload.convert.encode.staging import Staging, stage
from voxload.convert.plan.tiles import Tiling
from voxload.convert.sources.binary.flat import FlatFile, FlatReading, describe_flat
from voxload.errors import DataError, InternalError
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Volume


@contextmanager
def _staged(
    path: Path, stored: Volume, order: str, *, tiling: Tiling, width: int, check: Callable[[], object] | None = None
) -> Iterator[Staging]:
    """Write an array behind some other bytes, and yield how it is read."""
    path.write_bytes(b"head" + stored.tobytes())
    file = FlatFile(path, 4, shape=stored.shape, dtype=stored.dtype, order=AxisOrder(order))
    with file.open(check) as read_into:
        yield stage(describe_flat(file), tiling, width, read_into=read_into)


def _count_streams(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by a number whenever bands are read in one call: of the first of them."""
    found: list[int] = []
    read = BandReader.read

    def counted(self: BandReader, tile: tuple[int, int, int], chunks: Volume, *, first: int) -> int:
        found.append(first)
        return read(self, tile, chunks, first=first)

    monkeypatch.setattr(BandReader, "read", counted)
    return found


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.sampled_from(["DHWC", "HDWC", "DHW", "HDW"]),
    groups=st.sampled_from([(1, 1), (1, 3), (4, 1), (2, 2)]),
    chunk=st.tuples(*[st.integers(1, 9)] * 3),
    counts=st.tuples(*[st.integers(1, 4)] * 3),
    in_tile=st.tuples(*[st.integers(1, 4)] * 3),
    band=st.integers(1, 4000),
    dtype=st.sampled_from(["i2", "f4"]),
)
def test_chunks_are_the_cubes(
    order: str,
    groups: tuple[int, int],
    *,
    chunk: tuple[int, int, int],
    counts: tuple[int, int, int],
    in_tile: tuple[int, int, int],
    band: int,
    dtype: str,
    tmp_path: Path,
) -> None:
    """Tiles as wide as the cube or not, bands of any size and the shorter ones at a tile's end, channels in groups."""
    axes = AxisOrder(order)
    count, width = groups if axes.has_channels else (1, 1)
    d, h, w = (many * wide for many, wide in zip(counts, chunk, strict=True))
    volume = np.random.default_rng(band).integers(0, 250, (count * width, d, h, w)).astype(dtype)
    stored = np.ascontiguousarray(axes.view(volume))
    tile = tuple(min(many, n) * wide for many, n, wide in zip(in_tile, counts, chunk, strict=True))
    slowest_first = (1, 0, 2) if order.startswith("H") else (0, 1, 2)
    tiling = Tiling((d, h, w), chunk, (tile[0], tile[1], tile[2]), slowest_first, 2, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging_module, "STREAMED_BYTES", band)
        streams = _count_streams(patch)
        with _staged(tmp_path / "cube", stored, order, tiling=tiling, width=width) as staging:
            compare_chunks(staging, tiling, width, volume)
    assert streams == [0] * len(list(tiling.tiles()))


@pytest.mark.parametrize(("order", "dtype"), [("DHWC", ">i2"), ("CDHW", "<i2"), ("WHDC", "<i2")])
def test_others_are_not_streamed(order: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that must be swapped, channels that lie apart, and rows that are not along w."""
    streams = _count_streams(monkeypatch)
    axes = AxisOrder(order)
    volume = np.random.default_rng(1).integers(0, 250, (4, 8, 8, 16)).astype(dtype)
    slowest_first = (2, 1, 0) if order == "WHDC" else (0, 1, 2)
    tiling = Tiling((8, 8, 16), (4, 4, 8), (4, 8, 16), slowest_first, 2, 0)
    stored = np.ascontiguousarray(axes.view(volume))
    with _staged(tmp_path / "cube", stored, order, tiling=tiling, width=4) as staging:
        compare_chunks(staging, tiling, 4, volume)
    assert not streams


_TILING = Tiling((8, 8, 16), (4, 4, 8), (4, 8, 16), (0, 1, 2), 2, 0)


def _cube() -> Volume:
    return np.random.default_rng(2).integers(0, 250, (8, 8, 16, 4)).astype(np.int16)


def test_a_file_that_was_cut_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last bytes are missing: the bands before are read, and the one that lacks them raises."""
    monkeypatch.setattr(staging_module, "STREAMED_BYTES", 1024)
    stored, path = _cube(), tmp_path / "cube"
    with _staged(path, stored, "DHWC", tiling=_TILING, width=4) as staging:
        os.truncate(path, 4 + stored.nbytes - 1)
        first, last = _TILING.tiles()
        buffer = staging.buffer()
        staging.read(first, buffer)
        with pytest.raises(DataError, match="end of the file"):
            staging.read(last, buffer)


def test_what_is_not_given_at_once_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are missing at first and there when asked again: the tile is whole, and is read on in one call."""
    monkeypatch.setattr(staging_module, "STREAMED_BYTES", 1024)
    streams = _count_streams(monkeypatch)
    stored, path = _cube(), tmp_path / "cube"
    whole = b"head" + stored.tobytes()
    lacking = iter([whole[: 4 + 1500]])

    def check() -> None:
        # Asked before each reading: before the first one the end goes away, before the next it is back.
        with path.open("r+b") as file:
            content = next(lacking, whole)
            file.truncate(len(content))
            file.write(content)

    with _staged(path, stored, "DHWC", tiling=_TILING, width=4, check=check) as staging:
        compare_chunks(staging, _TILING, 4, stored.transpose(3, 0, 1, 2))
    assert streams == [0, 2, 0]


def test_a_file_that_changed_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """The check is asked for each tile."""

    def check() -> None:
        raise DataError("cube", found="another file")

    with (
        _staged(tmp_path / "cube", _cube(), "DHWC", tiling=_TILING, width=4, check=check) as staging,
        pytest.raises(DataError, match="another file"),
    ):
        staging.read(next(_TILING.tiles()), staging.buffer())


def test_a_cube_that_is_described_in_another_way_is_not_streamed(tmp_path: Path) -> None:
    """Whoever turns the axes of a file reads through it still: bytes may be parted only as the file has them."""
    stored = _cube()
    file = FlatFile(tmp_path / "cube", 4, shape=stored.shape, dtype=stored.dtype, order=AxisOrder("DHWC"))
    cube = describe_flat(file)
    reading = FlatReading(file, 0)
    assert can_read_bands(cube, reading)
    assert not can_read_bands(replace(cube, order=AxisOrder("HDWC")), reading)
    assert not can_read_bands(replace(cube, dtype=np.dtype("u2")), reading)
    assert not can_read_bands(replace(cube, shape=(4, 16, 16, 4)), reading)


def test_other_chunks_and_bands_are_refused(tmp_path: Path) -> None:
    """What was planned for some strides is written by them: nothing else may come later, nor another band."""
    stored, path = _cube(), tmp_path / "cube"
    path.write_bytes(stored.tobytes())
    file = FlatFile(path, 0, shape=stored.shape, dtype=stored.dtype, order=AxisOrder("DHWC"))
    chunks = np.zeros((1, 2, 2, 2, 4, 4, 4, 8), np.int16)
    block = np.zeros((4, 8, 16, 4), np.int16).transpose(3, 0, 1, 2)
    with file.open() as reading:
        assert isinstance(reading, FlatReading)
        bands = BandReader(reading, [((0, 0, 0), block), ((4, 0, 0), block)], chunks=chunks)
        for wrong in (
            chunks[:, :1],
            chunks.view(np.uint16),
            chunks.swapaxes(1, 2),
            np.broadcast_to(chunks, chunks.shape),
        ):
            with pytest.raises(InternalError, match="chunks"):
                bands.read((0, 0, 0), wrong, first=0)
        for first in (-1, 3):
            with pytest.raises(InternalError, match="of 2 bands"):
                bands.read((0, 0, 0), chunks, first=first)
        assert bands.read((0, 0, 0), chunks, first=2) == 2
        assert not chunks.any()
        assert bands.read((0, 0, 0), chunks, first=0) == 2
    np.testing.assert_array_equal(
        chunks.transpose(0, 4, 1, 5, 2, 6, 3, 7).reshape(4, 8, 8, 16), stored.transpose(3, 0, 1, 2)
    )


@pytest.mark.parametrize(
    "block",
    [
        np.zeros((4, 8, 16, 8), np.int16)[..., :4].transpose(3, 0, 1, 2),  # gaps
        np.zeros((8, 4, 16, 4), np.int16).transpose(3, 1, 0, 2),  # other axes
        np.zeros((4, 4, 8, 16), np.int16),  # channels apart
        np.broadcast_to(np.zeros((4, 8, 16, 4), np.int16), (4, 8, 16, 4)).transpose(3, 0, 1, 2),  # read-only
    ],
)
def test_blocks_that_bytes_do_not_fit_are_refused(block: Volume, tmp_path: Path) -> None:
    """The system writes the file's bytes one after the other."""
    stored, path = _cube(), tmp_path / "cube"
    path.write_bytes(stored.tobytes())
    file = FlatFile(path, 0, shape=stored.shape, dtype=stored.dtype, order=AxisOrder("DHWC"))
    chunks = np.zeros((1, 2, 2, 2, 4, 4, 4, 8), np.int16)
    with file.open() as reading:
        assert isinstance(reading, FlatReading)
        with pytest.raises(InternalError, match="room"):
            BandReader(reading, [((0, 0, 0), block)], chunks=chunks)
