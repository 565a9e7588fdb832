"""Direct reads: the same voxels past the page cache, at any offset, and an error where a file system cannot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader, set_direct_reads
from voxload.readers.storage.file import FileBytes, open_for_reading, read_range


@pytest.fixture
def _directly(tmp_path: Path) -> Iterator[None]:
    """Read directly, where the temporary folder's file system can."""
    try:
        os.close(os.open(tmp_path / "probe", os.O_CREAT | os.O_RDWR | os.O_DIRECT))
    except OSError:
        pytest.skip("the temporary folder's file system has no direct reads")
    set_direct_reads(is_direct=True)
    yield
    set_direct_reads(is_direct=False)


@pytest.mark.usefixtures("_directly")
def test_ranges_need_not_be_aligned(tmp_path: Path) -> None:
    """Any range is read exactly, one that reaches over the file's end as far as the file goes."""
    content = np.random.default_rng(0).integers(0, 256, 3 * 4096 + 77).astype(np.uint8)
    content.tofile(tmp_path / "x")
    descriptor = open_for_reading(str(tmp_path / "x"))
    for offset, length in (
        (0, 4096),
        (1, 1),
        (4095, 2),
        (5, 3 * 4096),
        (0, len(content)),
        (9000, 10_000),
        (12_288, 77),
    ):
        found = read_range(descriptor, offset, length, lambda size: np.empty(size, np.uint8))
        assert np.array_equal(found, content[offset : offset + length])
    os.close(descriptor)
    file = FileBytes(str(tmp_path / "x"), may_map=True)
    assert file.map is None
    assert np.array_equal(file.read(4000, 5000), content[4000:9000])
    with pytest.raises(DataError, match="x: found 77 bytes"):
        file.read(12_288, 78)
    file.close()


@pytest.mark.usefixtures("_directly")
@pytest.mark.parametrize("kind", ["gzip", "raw", "contiguous", "zarr", "zarr raw", "sharded", "sharded raw"])
def test_voxels_are_the_same(tmp_path: Path, kind: str) -> None:
    """Every kind of storage, whole and in part."""
    values = np.random.default_rng(1).integers(0, 50, (40, 40, 40)).astype(np.int16)
    path, chunks = tmp_path / "x", (16, 16, 16)
    if kind in ("gzip", "raw", "contiguous"):
        with h5py.File(path, "w") as file:
            chunked = {"chunks": None if kind == "contiguous" else chunks}
            file.create_dataset("x", data=values, compression="gzip" if kind == "gzip" else None, **chunked)
    else:
        shards = (32, 32, 32) if "sharded" in kind else None
        packed = None if "raw" in kind else "auto"
        zarr.create_array(path, data=values, chunks=chunks, shards=shards, compressors=packed)  # type: ignore[arg-type]
    reader = open_reader(Location(str(path), "x" if path.is_file() else ""))
    for box in (Box.whole(values.shape), Box((3, 5, 7), (20, 33, 40))):
        out = np.zeros((1, *box.shape), np.int16)
        reader.read_into(box, out)
        assert np.array_equal(out[0], values[box.slices])
    reader.close()


def test_a_file_system_without_direct_reads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where, and how to go on."""
    monkeypatch.setattr("voxload.readers.storage.file._is_direct", True)
    with pytest.raises(UsageError, match="maps: found a file system without direct reads; set_direct"):
        open_for_reading("/proc/self/maps")
