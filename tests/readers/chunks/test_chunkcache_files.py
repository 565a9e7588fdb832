"""The cache of decoded chunks over files: shared by all readers of one, and never older than the file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from zarr.codecs import BloscCodec, GzipCodec

from tests.support.settled import settle
from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers import Location, Reader, chunk_cache, open_reader, set_chunk_cache
from voxload.readers.chunks.chunkcache import CacheFigures
from voxload.readers.storage import file as file_module
from voxload.readers.zarr import chunkfiles, native, openshards

pytestmark = pytest.mark.usefixtures("no_leaks", "short_waits")

Voxels = npt.NDArray[Any]
SHAPE = (16, 16, 16)
OLD = np.random.default_rng(0).integers(0, 9, SHAPE).astype("<i2")
NEW = np.random.default_rng(1).integers(0, 9, SHAPE).astype("<i2")
CHUNKS = 8
LONG_AGO = 10**18
FUTURE = 2**62
"""When files were written, in nanoseconds since 1970: what was written just now is not kept."""


@pytest.fixture(autouse=True)
def _cache() -> Iterator[None]:
    """Give each test a cache with room for all it reads."""
    set_chunk_cache(2**20)
    yield
    set_chunk_cache(0)


@dataclass(frozen=True)
class Storage:
    """A way of storing a volume."""

    write: Callable[[Path, Voxels], None]
    """Writes a file or folder."""
    dataset: str = ""
    """Name in the file."""


def _hdf5(path: Path, voxels: Voxels) -> None:
    with h5py.File(path, "w") as file:
        for name, data in (("x", voxels), ("y", voxels + 1)):
            file.create_dataset(name, data=data, chunks=(8, 8, 8), compression="gzip", shuffle=True, fletcher32=True)


def _zarr(codec: Any, shards: tuple[int, ...] | None) -> Callable[[Path, Voxels], None]:
    def write(path: Path, voxels: Voxels) -> None:
        names = ("d", "h", "w")
        array = zarr.create_array(
            path, shape=SHAPE, dtype="<i2", chunks=(8, 8, 8), shards=shards, compressors=codec, dimension_names=names
        )
        array[...] = voxels

    return write


STORAGES = {
    "HDF5": Storage(_hdf5, "x"),
    "Zarr, chunks": Storage(_zarr(GzipCodec(), None)),
    "Zarr, shards": Storage(_zarr(BloscCodec(cname="zstd"), (16, 16, 8))),
}
each_storage = pytest.mark.parametrize("storage", STORAGES.values(), ids=STORAGES)


def write(storage: Storage, path: Path, voxels: Voxels, *, when: int = LONG_AGO) -> Location:
    """Write a volume anew, as of some time, by renaming what is complete."""
    fresh = path.with_name("fresh")
    storage.write(fresh, voxels)
    for file in [fresh, *fresh.rglob("*")]:
        os.utime(file, ns=(when, when))
    if path.is_dir():
        shutil.rmtree(path)
    fresh.replace(path)
    settle(path)
    return Location(str(path), storage.dataset)


def read(reader: Reader, box: Box | None = None) -> Voxels:
    """Return the voxels of a box, by default all."""
    chosen = box or Box.whole(SHAPE)
    out = np.full((1, *chosen.shape), -1, np.int16)
    reader.read_into(chosen, out)
    found: Voxels = out[0]
    return found


def once(location: Location) -> Voxels:
    """Return all voxels, through a reader of their own."""
    with closing(open_reader(location)) as reader:
        assert reader.describe().route == "native"
        return read(reader)


def figures() -> CacheFigures:
    """Return the figures of the process's cache."""
    cache = chunk_cache()
    assert cache is not None
    return cache.figures()


@each_storage
def test_readers_of_one_file_share_its_chunks(tmp_path: Path, storage: Storage) -> None:
    """A second read and a second reader decode nothing; another dataset and another file have chunks of their own."""
    location = write(storage, tmp_path / "x", OLD)
    with closing(open_reader(location)) as one, closing(open_reader(location)) as other:
        assert np.array_equal(read(one, Box((0, 0, 0), (9, 9, 9))), OLD[:9, :9, :9])
        assert np.array_equal(read(other), OLD)
    assert np.array_equal(once(location), OLD)
    assert (figures().misses, figures().hits) == (CHUNKS, 2 * CHUNKS)
    assert np.array_equal(once(write(storage, tmp_path / "z", NEW)), NEW)
    assert figures().misses == 2 * CHUNKS
    if storage.dataset:
        assert np.array_equal(once(Location(location.path, "y")), OLD + 1)
        assert figures().misses == 3 * CHUNKS


@pytest.mark.few_cases(3)
@each_storage
@pytest.mark.parametrize("when", [LONG_AGO, LONG_AGO + 1, 0], ids=["same time", "later", "much earlier"])
def test_a_file_written_anew_never_gives_old_voxels(tmp_path: Path, storage: Storage, when: int) -> None:
    """Whatever time the new file claims to be of, even that of the old one, what is read is what it holds."""
    location = write(storage, tmp_path / "x", OLD)
    keeper = open_reader(location)  # holds what it has open, so that the new file is another one
    assert np.array_equal(read(keeper), OLD)
    write(storage, tmp_path / "x", NEW, when=when)
    assert np.array_equal(once(location), NEW)
    try:
        assert np.array_equal(read(keeper), NEW)  # chunk files are opened at each read
    except DataError as error:
        assert "changed since it was opened" in str(error)  # noqa: PT017 - which of both depends on the storage
    keeper.close()


@pytest.mark.few_cases(2)
@each_storage
@pytest.mark.parametrize("keeps_time", [False, True], ids=["now", "same time"])
def test_files_written_in_place_never_give_old_voxels(tmp_path: Path, storage: Storage, *, keeps_time: bool) -> None:
    """The same file with other bytes in it has another time of change at least, so its chunks are others."""
    location = write(storage, tmp_path / "x", OLD)
    assert np.array_equal(once(location), OLD)
    source = tmp_path / "y"
    write(storage, source, NEW)
    for file in [source, *source.rglob("*")]:
        target = Path(location.path) / file.relative_to(source)
        if file.is_file():
            before = target.stat()
            target.write_bytes(file.read_bytes())
            assert target.stat().st_ino == before.st_ino
            if keeps_time:
                os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    settle(tmp_path / "x")
    assert np.array_equal(once(location), NEW)
    assert figures().chunks == 2 * CHUNKS


@each_storage
def test_of_files_written_just_now_nothing_is_kept(tmp_path: Path, storage: Storage) -> None:
    """A file may change again within one tick of its clock, and would look the same."""
    storage.write(tmp_path / "x", OLD)
    for file in [tmp_path / "x", *(tmp_path / "x").rglob("*")]:
        os.utime(file, ns=(FUTURE, FUTURE))  # younger than any moment at which it can be read
    for _ in range(2):
        assert np.array_equal(once(Location(str(tmp_path / "x"), storage.dataset)), OLD)
    assert figures() == CacheFigures(0, 0, 0, 0, 0)


@each_storage
def test_storage_that_is_not_of_this_node(tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that many requests bring at once are kept too; those that are there are not asked for."""
    monkeypatch.setattr(file_module, "is_on_near_device", lambda *_: False)
    for module in (chunkfiles, native, openshards):
        monkeypatch.setattr(module, "is_node_local", lambda _path: False)
    location = write(storage, tmp_path / "x", OLD)
    with closing(open_reader(location)) as reader:
        assert np.array_equal(read(reader, Box((0, 0, 0), (9, 9, 8))), OLD[:9, :9, :8])
        assert np.array_equal(read(reader), OLD)
        assert np.array_equal(read(reader), OLD)
    assert (figures().misses, figures().hits) == (CHUNKS, 4 + CHUNKS)


@each_storage
def test_damage_is_reported_by_every_read(tmp_path: Path, storage: Storage) -> None:
    """A damaged chunk is an error each time, whatever is kept of others, and none once the file is whole again."""
    location = write(storage, tmp_path / "x", OLD)
    whole = tmp_path / "whole"
    (shutil.copytree if (tmp_path / "x").is_dir() else shutil.copy2)(tmp_path / "x", whole)
    victim, start = _first_chunk(tmp_path / "x")
    data = bytearray(victim.read_bytes())
    data[start + 20 : start + 60] = bytes(40)
    victim.write_bytes(data)
    os.utime(victim, ns=(LONG_AGO + 1, LONG_AGO + 1))
    for _ in range(2):
        with pytest.raises(DataError, match="chunk"):
            once(location)
    if whole.is_dir():
        shutil.rmtree(location.path)
    whole.replace(location.path)
    assert np.array_equal(once(location), OLD)


def _first_chunk(path: Path) -> tuple[Path, int]:
    """Return the file that holds a chunk, and where it begins there."""
    if path.is_dir():
        return path / "c/0/0/0", 0
    with h5py.File(path) as file:
        return path, int(file["x"].id.get_chunk_info(0).byte_offset)


def test_uncompressed_chunks_are_not_kept(tmp_path: Path) -> None:
    """They are pasted out of the file as they are: a copy of them would save nothing."""
    for name, write_raw in (("x", _zarr(None, None)), ("y", _zarr(None, (16, 16, 16)))):
        location = write(Storage(write_raw), tmp_path / name, OLD)
        for _ in range(2):
            assert np.array_equal(once(location), OLD)
    assert figures().misses == figures().chunks == 0


@pytest.mark.parametrize(
    ("tag", "age", "requests"),
    [('"{}"', None, 0), ('"{}"', 3600.0, 0), ('"{}"', 0.0, 1), ('W/"{}"', None, 1), ("", None, 1)],
    ids=["strong", "old", "young", "weak", "none"],
)
def test_remote_shards_are_kept_by_their_entity_tag(
    server: Any, tmp_path: Path, tag: str, age: float | None, requests: int
) -> None:
    """Chunks of a shard whose tag is strong, and of no time just past, need no request again; others do."""
    server.tag, server.age = tag, age
    _zarr(GzipCodec(), (16, 16, 16))(tmp_path / "x.zarr", OLD)
    with closing(open_reader(Location(f"{server.url}/x.zarr"))) as reader:
        assert np.array_equal(read(reader), OLD)
        server.forget()
        assert np.array_equal(read(reader), OLD)
        assert len(server.paths) == requests
    shutil.rmtree(tmp_path / "x.zarr")
    _zarr(GzipCodec(), (16, 16, 16))(tmp_path / "x.zarr", NEW)
    with closing(open_reader(Location(f"{server.url}/x.zarr"))) as reader:
        assert np.array_equal(read(reader), NEW)
