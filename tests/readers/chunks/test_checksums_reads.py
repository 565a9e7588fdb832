"""Verified reads: whatever happens to a stored chunk, a read of it gives the voxels that were recorded, or an error."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numcodecs
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, Crc32cCodec

from voxload.catalog.checksums import recording, sum_volume
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.errors import DataError, UsageError, VoxloadError
from voxload.geometry import Box
from voxload.readers import Handles, Location, open_reader
from voxload.readers.chunks.checksums import ChecksumRow
from voxload.readers.protocol import ChecksumSource
from voxload.verification import verify

Array = npt.NDArray[Any]
SHAPE = (12, 10, 9)
CHUNKS = (4, 5, 4)
ERASED = 255
"""Every byte of a chunk that was never written, as read with missing="fill"."""


def _hdf5(path: Path, volume: Array, **storage: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=volume, chunks=CHUNKS, **storage)


def _zarr(path: Path, volume: Array, **storage: Any) -> None:
    group = zarr.create_group(path, zarr_format=3)
    node = group.create_array(
        "x", shape=SHAPE, dtype=volume.dtype, config={"write_empty_chunks": True}, fill_value=0, **storage
    )
    node[...] = volume


def _zarr_v2(path: Path, volume: Array, **storage: Any) -> None:
    group = zarr.create_group(path, zarr_format=2)
    group.create_array("x", shape=SHAPE, chunks=CHUNKS, dtype=volume.dtype, **storage)[...] = volume


BLOSC = BloscCodec(cname="lz4", clevel=5, typesize=2)
NATIVE: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "hdf5": (_hdf5, {}),
    "hdf5 gzip": (_hdf5, {"compression": "gzip", "shuffle": True}),
    "hdf5 scaleoffset": (_hdf5, {"scaleoffset": 0}),
    "zarr raw": (_zarr, {"chunks": CHUNKS, "compressors": None}),
    "zarr blosc": (_zarr, {"chunks": CHUNKS, "compressors": BLOSC}),
    "zarr crc32c": (_zarr, {"chunks": CHUNKS, "compressors": [BLOSC, Crc32cCodec()]}),
    "zarr sharded": (_zarr, {"chunks": CHUNKS, "shards": (8, 10, 12), "compressors": BLOSC}),
    "zarr sharded raw": (_zarr, {"chunks": CHUNKS, "shards": (8, 10, 12), "compressors": None}),
}
_ODD = h5py.h5t.STD_I16LE.copy()
_ODD.set_pad(h5py.h5t.PAD_ONE, h5py.h5t.PAD_ONE)
"""Sixteen bits as numpy has them, and not the same type to libhdf5."""
LIBRARY: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "hdf5 odd type": (_hdf5, {"dtype": h5py.Datatype(_ODD), "compression": "gzip"}),
    "zarr v2 filters": (_zarr_v2, {"filters": [numcodecs.Delta("<i2")], "compressors": None}),
}
KINDS = NATIVE | LIBRARY
"""Storage that is read natively, and storage that only h5py and zarr-python read."""


class Stored:
    """A volume in storage with its checksums recorded."""

    def __init__(self, folder: Path, kind: str, volume: Array) -> None:
        make, storage = KINDS[kind]
        self.kind = kind
        self.volume = volume
        self.path = folder / f"x.{kind.partition(' ')[0]}"
        make(self.path, volume, **storage)
        self.sums = folder / "sums.parquet"
        self.bare = Location(str(self.path), "x", axes="DHW")
        self.record()
        self.location = Location(str(self.path), "x", axes="DHW", checksums=ChecksumSource(str(self.sums), "s", "x"))

    def record(self) -> None:
        """Record the checksums of what is stored now."""
        with recording(self.sums) as add:
            add(ChecksumRow("s", "x", "", sum_volume(self.bare)))

    def spans(self) -> list[tuple[Path, int, int]]:
        """Return file, offset and length of what holds chunks: by h5py's own table, or whole objects."""
        if self.path.is_dir():
            parts = sorted(part for part in (self.path / "x").rglob("*") if part.is_file())
            objects = [part for part in parts if part.name != "zarr.json" and not part.name.startswith(".z")]
            return [(part, 0, part.stat().st_size) for part in objects]
        with h5py.File(self.path) as file:
            node = file["x"].id
            infos = [node.get_chunk_info(index) for index in range(node.get_num_chunks())]
        return [(self.path, info.byte_offset, info.size) for info in infos]


@pytest.fixture(params=KINDS)
def stored(request: pytest.FixtureRequest, tmp_path: Path, laws: ModuleType) -> Stored:
    """Give a volume of each kind of storage."""
    return Stored(tmp_path, request.param, laws.voxels(SHAPE, "<i2") & 0xFFF)


def read(location: Location, box: Box | None = None, missing: str = "error") -> Array:
    """Read a box, or all, as (D, H, W)."""
    reader = open_reader(location, missing=missing)
    try:
        box = box or reader.describe().whole
        out = np.full((1, *box.shape), ERASED, reader.describe().native_dtype)
        reader.read_into(box, out)
        volume: Array = out[0]
        return volume
    finally:
        reader.close()


def flip(path: Path, place: int, bit: int = 0) -> None:
    """Flip one bit of a file, in place: with the file's times as they were."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))


@pytest.mark.few_cases(2)
def test_sound_data_are_read(stored: Stored, laws: ModuleType, no_leaks: None) -> None:  # noqa: ARG001 - a check
    """A reader that verifies keeps every law of readers."""
    reader = open_reader(stored.location)
    try:
        assert (reader.describe().route == "native") == (stored.kind in NATIVE)
        laws.check_reader(reader, stored.volume[np.newaxis])
    finally:
        reader.close()


@pytest.mark.few_cases(3)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_bit_is_an_error(stored: Stored, data: st.DataObject) -> None:
    """One bit anywhere in what is stored of the chunks: a read says where, and never gives voxels."""
    path, start, size = data.draw(st.sampled_from(stored.spans()))
    place, bit = start + data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 7))
    flip(path, place, bit)
    try:
        with pytest.raises(DataError) as caught:
            read(stored.location)
        assert str(stored.path) in str(caught.value)
        assert "copy or convert" in str(caught.value)
    finally:
        flip(path, place, bit)
    np.testing.assert_array_equal(read(stored.location), stored.volume)


@pytest.mark.parametrize("kind", ["zarr blosc", "zarr raw", "hdf5"])
def test_without_checksums_a_flipped_bit_is_silent(tmp_path: Path, kind: str) -> None:
    """This is what checksums are for: storage without any gives wrong voxels and no error; with them, the error."""
    noise = np.random.default_rng(0).integers(0, 2**15, SHAPE).astype("<i2")
    stored = Stored(tmp_path, kind, noise)
    path, start, size = stored.spans()[0]
    flip(path, start + size // 2)
    assert np.count_nonzero(read(stored.bare) != noise) == 1
    words = (
        r"x, chunk \(0, 0, 0\): bytes of chunk .*: found CRC-32C 0x[0-9a-f]{8}, expected 0x[0-9a-f]{8}, as in .*sums"
    )
    with pytest.raises(DataError, match=words):
        read(stored.location)


@pytest.mark.parametrize("kind", ["zarr raw", "zarr sharded raw", "hdf5"])
def test_a_part_of_a_chunk_is_verified_by_the_whole(tmp_path: Path, kind: str, laws: ModuleType) -> None:
    """A read of one voxel notices damage anywhere in its chunk, and none in other chunks."""
    stored = Stored(tmp_path, kind, laws.voxels(SHAPE, "<i2"))
    first = Box((0, 0, 0), (1, 1, 1))
    np.testing.assert_array_equal(read(stored.location, first), stored.volume[first.slices])
    path, start, _ = stored.spans()[0]
    flip(path, start + 2 * prod(CHUNKS) - 1)
    np.testing.assert_array_equal(read(stored.bare, first), stored.volume[first.slices])
    with pytest.raises(DataError, match="CRC-32C"):
        read(stored.location, first)
    other = Box((8, 5, 8), (9, 6, 9))
    np.testing.assert_array_equal(read(stored.location, other), stored.volume[other.slices])


@pytest.mark.parametrize("kind", ["zarr blosc", "zarr crc32c", "zarr v2 filters"])
@pytest.mark.parametrize("missing", ["error", "fill"])
def test_a_chunk_that_is_gone(tmp_path: Path, kind: str, missing: str, *, laws: ModuleType) -> None:
    """A chunk that was there is missed even where missing ones are filled."""
    stored = Stored(tmp_path, kind, laws.voxels(SHAPE, "<i2"))
    stored.spans()[-1][0].unlink()
    if missing == "fill":
        assert not np.array_equal(read(stored.bare, missing="fill"), stored.volume)
    with pytest.raises(DataError, match="no chunk") as caught:
        read(stored.location, missing=missing)
    assert "(2, 1, 2)" in str(caught.value)


def test_an_inner_chunk_that_is_gone(tmp_path: Path, laws: ModuleType) -> None:
    """A shard that was written anew without one of its chunks, with an index that is right, is noticed."""
    stored = Stored(tmp_path, "zarr sharded", laws.voxels(SHAPE, "<i2"))
    node = zarr.open_array(stored.path / "x", mode="r+", config={"write_empty_chunks": False})
    node[0:4, 0:5, 0:4] = 0
    assert not read(stored.bare, missing="fill")[0:4, 0:5, 0:4].any()
    with pytest.raises(
        DataError, match=r"chunk \(0, 0, 0\): no chunk x/c/0/0/0, inner chunk \(0, 0, 0\): expected one"
    ):
        read(stored.location, missing="fill")


def _sparse_hdf5(path: Path) -> Callable[[], None]:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", SHAPE, "<i2", chunks=CHUNKS)[4:] = 1

    def write() -> None:
        with h5py.File(path, "r+") as file:
            file["x"][0:4] = 2

    return write


def _sparse_zarr(path: Path) -> Callable[[], None]:
    node = zarr.create_group(path, zarr_format=3).create_array("x", shape=SHAPE, chunks=CHUNKS, dtype="<i2")
    node[4:] = 1

    def write() -> None:
        node[0:4] = 2

    return write


@pytest.mark.parametrize("make", [_sparse_hdf5, _sparse_zarr])
def test_a_chunk_that_appeared(tmp_path: Path, make: Callable[[Path], Callable[[], None]]) -> None:
    """Chunks that were never written may be filled; one that is suddenly there is not what was recorded."""
    path, sums = tmp_path / "x", tmp_path / "sums.parquet"
    write = make(path)
    location = Location(str(path), "x", axes="DHW", checksums=ChecksumSource(str(sums), "s", "x"))
    known = np.zeros(SHAPE, "<i2")
    known[4:] = 1
    with pytest.raises(DataError, match="no chunk"):
        sum_volume(Location(str(path), "x", axes="DHW"))
    with recording(sums) as add:
        add(ChecksumRow("s", "x", "", sum_volume(Location(str(path), "x", axes="DHW"), missing="fill")))
    np.testing.assert_array_equal(read(location, missing="fill"), known)
    write()
    with pytest.raises(DataError, match=r"chunk .*: found data, expected none, as in .*sums.parquet"):
        read(location, missing="fill")


def test_swapped_chunks(tmp_path: Path, laws: ModuleType) -> None:
    """Two sound chunks in each other's place: their own checksums are right, those of the catalogue are not."""
    stored = Stored(tmp_path, "zarr crc32c", laws.voxels(SHAPE, "<i2"))
    (one, *_), (other, *_) = stored.spans()[:2]
    one.rename(tmp_path / "held")
    other.rename(one)
    (tmp_path / "held").rename(other)
    assert not np.array_equal(read(stored.bare), stored.volume)
    with pytest.raises(DataError, match="CRC-32C"):
        read(stored.location)


def test_a_rewritten_file(stored: Stored) -> None:
    """Other voxels in the same place are no longer what was recorded."""
    if stored.path.is_dir():
        zarr.open_array(stored.path / "x", mode="r+")[...] = stored.volume // 2
    else:
        with h5py.File(stored.path, "r+") as file:
            file["x"][...] = stored.volume // 2
    np.testing.assert_array_equal(read(stored.bare), stored.volume // 2)
    with pytest.raises(DataError, match="CRC-32C"):
        read(stored.location)


@pytest.mark.parametrize("chunks", [(4, 5, 8), None])
def test_a_file_that_is_cut_otherwise(tmp_path: Path, laws: ModuleType, chunks: tuple[int, ...] | None) -> None:
    """Checksums of another grid of chunks, or of chunks that are none, are refused when the file is opened."""
    stored = Stored(tmp_path, "hdf5", laws.voxels(SHAPE, "<i2"))
    with h5py.File(stored.path, "w") as file:
        file.create_dataset("x", data=stored.volume, chunks=chunks)
    found = r"a grid of \(3, 2, 2\) chunks" if chunks else "contiguous storage"
    with pytest.raises(DataError, match=rf"found {found}, expected \(3, 2, 3\) as in .*sums.parquet; .*rewritten"):
        open_reader(stored.location)


def test_formats_that_cannot_verify_are_refused(tmp_path: Path) -> None:
    """An array that has no chunks is not read as if its checksums had been compared."""
    np.save(tmp_path / "x.npy", np.zeros(SHAPE, "<i2"))
    location = Location(str(tmp_path / "x.npy"), checksums=ChecksumSource(str(tmp_path / "sums"), "s", ""))
    with pytest.raises(UsageError, match="cannot verify them"):
        open_reader(location)
    with pytest.raises(UsageError, match=r"contiguous storage, .* convert it with voxload convert --checksums"):
        sum_volume(Location(str(tmp_path / "x.npy")))


def test_damage_is_not_recorded(tmp_path: Path, laws: ModuleType) -> None:
    """A chunk that cannot be decoded gets no checksum: it would protect the damage."""
    stored = Stored(tmp_path, "zarr crc32c", laws.voxels(SHAPE, "<i2"))
    path, start, size = stored.spans()[3]
    flip(path, start + size - 1)
    with pytest.raises(DataError, match=r"chunk \(0, 1, 0\): .*checksum"):
        sum_volume(stored.bare)


def test_handles_and_processes(tmp_path: Path, laws: ModuleType) -> None:
    """A location with checksums is a key and travels, and a handle of it verifies."""
    stored = Stored(tmp_path, "zarr blosc", laws.voxels(SHAPE, "<i2"))
    assert pickle.loads(pickle.dumps(stored.location)) == stored.location  # noqa: S301 - our own bytes
    assert len({stored.location, stored.bare}) == 2
    path, start, size = stored.spans()[0]
    flip(path, start + size - 1)
    handles = Handles("error")
    out = np.empty((1, *SHAPE), "<i2")

    def fetch() -> None:
        with handles.lease(stored.location) as reader:
            reader.read_into(Box.whole(SHAPE), out)

    with pytest.raises(VoxloadError, match="CRC-32C"):
        fetch()
    handles.close()


@pytest.mark.parametrize("kind", ["zarr blosc", "zarr raw", "zarr sharded", "zarr v2 filters"])
def test_remote_chunks(tmp_path: Path, laws: ModuleType, kind: str) -> None:
    """Behind a URL, too, chunks are compared, those that are fetched ahead and those that are fetched alone."""
    stored = Stored(tmp_path, kind, laws.voxels(SHAPE, "<i2"))
    location = replace(stored.location, path=stored.path.as_uri())
    np.testing.assert_array_equal(read(location), stored.volume)
    entry = Entry("s", location.path, "x", SHAPE, "<i2", "DHW", 1, checksums="sums.parquet")
    Catalog.from_entries([entry], tmp_path, allow_outside=True).write(tmp_path / CATALOG_NAME)
    report = verify(tmp_path, allow_outside=True)
    assert (report.chunks, report.damaged) == (18, 0)
    path, start, size = stored.spans()[0]
    place = start + size // 2 if "sharded" not in kind else 40
    flip(path, place)
    with pytest.raises(DataError, match="CRC-32C"):
        read(location)
    assert verify(tmp_path, allow_outside=True).damaged == 1
    flip(path, place)
    if "sharded" in kind:
        flip(path, size - 1)
        assert verify(tmp_path, allow_outside=True).damaged > 1
