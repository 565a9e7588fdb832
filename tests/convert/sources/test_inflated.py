"""Compressed streams: read forwards in bounded memory, and verified to their end."""

from __future__ import annotations

import gzip
import re
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.laws.source import check_source, coordinates
from voxload.convert.sources.binary import inflater
from voxload.convert.sources.binary.stored import InflatedFile, StoredSource, scratch_bytes
from voxload.convert.sources.protocol import RawCube
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder


def _source(path: Path, *, shape: tuple[int, ...], axes: str = "DHW", dtype: str = "<i4", skipped: int = 0) -> Any:
    stored = np.dtype(dtype)
    file = InflatedFile(path, 0, skipped, shape=shape, dtype=stored, order=AxisOrder(axes))
    cube = RawCube(path, "image", shape=shape, order=file.order, dtype=stored.newbyteorder("="), is_sequential=True)
    return StoredSource(cube, file)


def _read(source: Any, *boxes: Box) -> None:
    with source.open() as read_into:
        for box in boxes:
            read_into(box, np.empty((source.describe().volume_shape[0], *box.shape), source.describe().dtype))


@pytest.mark.parametrize("axes", ["DHW", "WHD", "CDHW", "DHWC", "DCHW", "CWDH"])
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_no_axis_moves(tmp_path: Path, axes: str, compress: Any) -> None:
    """Every order of axes comes out as it was written, channels first too, whose slabs lie in several places."""
    volume = coordinates((3 if "C" in axes else 1, 5, 6, 7), ">i4")
    turned = (volume if "C" in axes else volume[0]).transpose(
        ["CDHW".replace("C", "", "C" not in axes).index(axis) for axis in axes]
    )
    (tmp_path / "cube").write_bytes(compress(b"head" + turned.tobytes()))
    check_source(_source(tmp_path / "cube", shape=turned.shape, axes=axes, dtype=">i4", skipped=4), volume)


def test_members_and_padding(tmp_path: Path) -> None:
    """Several gzip members are one stream, and zeros may follow the last one, as gzip allows."""
    volume = coordinates((1, 4, 5, 6))
    content = volume.tobytes()
    parts = [gzip.compress(content[:99]), gzip.compress(b""), gzip.compress(content[99:])]
    (tmp_path / "cube").write_bytes(b"".join(parts) + bytes(70_000))
    check_source(_source(tmp_path / "cube", shape=(4, 5, 6)), volume)


@pytest.mark.parametrize("axes", ["DHW", "CDHW"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-9], "truncated|within the compressed stream"),
        (lambda data: data[:-8] + bytes([data[-8] ^ 1]) + data[-7:], "incorrect data check"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "incorrect length check"),
        (lambda data: data + b"more", "bytes behind the compressed stream"),
        (lambda data: data + gzip.compress(b"x"), "more than 384 decoded bytes"),
        (lambda _: gzip.compress(bytes(300)), "after 300 decoded bytes"),
    ],
)
def test_broken_streams_are_refused(tmp_path: Path, damage: Any, message: str, axes: str) -> None:
    """What is cut, damaged, too long or too short raises, at the latest with the last voxel, and names the file."""
    content = np.random.default_rng(0).integers(0, 256, 384, dtype="u1").tobytes()
    path = tmp_path / "cube.gz"
    path.write_bytes(damage(gzip.compress(content)))
    shape = (4, 4, 6) if axes == "DHW" else (2, 4, 4, 3)
    with pytest.raises(DataError, match=message) as caught:
        _read(
            _source(path, shape=shape, axes=axes),
            Box.whole(_source(path, shape=shape, axes=axes).cube.volume_shape[1:]),
        )
    assert str(path) in str(caught.value)


def test_reads_out_of_order_are_refused(tmp_path: Path) -> None:
    """A stream does not go back, and gives whole planes: other boxes are the caller's error."""
    path = tmp_path / "cube.gz"
    path.write_bytes(gzip.compress(bytes(4 * 60)))
    source = _source(path, shape=(3, 4, 5))
    with pytest.raises(UsageError, match="only goes forwards"):
        _read(source, Box((1, 0, 0), (2, 4, 5)), Box((0, 0, 0), (1, 4, 5)))
    with pytest.raises(UsageError, match="whole planes"):
        _read(source, Box((0, 0, 0), (1, 2, 5)))
    path.unlink()
    with pytest.raises(NotFoundError):
        _read(source)


def test_streams_are_inflated_in_one_place() -> None:
    """What gzip allows and what it refuses is the same for images and for records: no source has a decoder of its own.

    Archives of numpy are zipfile's.
    """
    sources = Path(inflater.__file__).parents[1]
    own = {path.name for path in sources.rglob("*.py") if re.search(r"decompressobj|import gzip", path.read_text())}
    assert own == {"inflater.py"}


def test_channels_are_decoded_twice_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight channels one behind the other, each begins where a copy of the first pass was left."""
    volume = np.random.default_rng(0).integers(0, 99, (8, 16, 32, 32)).astype("<i4")
    (tmp_path / "cube").write_bytes(gzip.compress(volume.tobytes(), 1))
    decoded, some = 0, inflater.Inflater._some

    def count(self: inflater.Inflater, most: int) -> bytes:
        nonlocal decoded
        part = some(self, most)
        decoded += len(part)
        return part

    monkeypatch.setattr(inflater.Inflater, "_some", count)
    with _source(tmp_path / "cube", shape=volume.shape, axes="CDHW").open() as read_into:
        for plane in range(16):
            out = np.empty((8, 1, 32, 32), "i4")
            read_into(Box((plane, 0, 0), (plane + 1, 32, 32)), out)
            np.testing.assert_array_equal(out, volume[:, plane : plane + 1])
    assert decoded <= 2 * volume.nbytes


@pytest.mark.parametrize("axes", ["DHW", "CDHW"])
def test_memory_is_bounded(tmp_path: Path, axes: str) -> None:
    """Reading plane by plane takes what the source says beside the plane, however long the stream is."""
    path = tmp_path / "cube.gz"
    path.write_bytes(gzip.compress(bytes(2**23), 1))
    shape = (32, 256, 1024) if axes == "DHW" else (2, 16, 256, 1024)
    source = _source(path, shape=shape, axes=axes, dtype="u1")
    plane = np.empty((shape[0] if axes == "CDHW" else 1, 1, 256, 1024), "u1")
    with source.open() as read_into:
        tracemalloc.start()
        for index in range(0, source.cube.volume_shape[1], 8):
            read_into(Box((index, 0, 0), (index + 1, 256, 1024)), plane)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < scratch_bytes(source.file, is_decoded=False)
