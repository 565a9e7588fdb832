"""HDF5 files behind URLs: equal to h5py, in few requests, and no worse than local ones when something goes wrong."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.catalog.checksums import recording, sum_volume
from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, find_format, open_reader
from voxload.readers.chunks.checksums import ChecksumRow
from voxload.readers.hdf5 import Hdf5Reader
from voxload.readers.hdf5.native import NativeHdf5Reader
from voxload.readers.protocol import ChecksumSource
from voxload.readers.remote.file import BLOCK_BYTES, KEPT_BYTES, RemoteFile
from voxload.readers.remote.objects import Counts
from voxload.readers.remote.ranges import open_object
from voxload.readers.zarr import ZarrFormat

pytestmark = pytest.mark.usefixtures("no_leaks", "short_waits")

SHAPE = (24, 20, 16)
CHUNKS = (8, 8, 8)
STORAGE: dict[str, tuple[str, dict[str, Any]]] = {
    "gzip": ("<i2", {"chunks": CHUNKS, "compression": "gzip", "shuffle": True}),
    "fletcher32": ("<f4", {"chunks": CHUNKS, "fletcher32": True}),
    "raw": ("<i2", {"chunks": CHUNKS}),
    "contiguous": ("<f4", {}),
}


def publish(server: Any, laws: ModuleType, kind: str = "gzip", *, name: str = "x.h5", **file: Any) -> np.ndarray:
    """Put a file with one volume and a vector on the server; return the volume as h5py reads it."""
    dtype, storage = STORAGE[kind]
    path = server.folder / name
    with h5py.File(path, "w", **file) as opened:
        opened.create_dataset("deep/full", data=laws.voxels(SHAPE, dtype), **storage)
        opened.create_dataset("targets", data=[0.25, 0.5])
    with h5py.File(path) as opened:
        volume: np.ndarray = opened["deep/full"][...]
        return volume


def open_native(server: Any, name: str = "x.h5", **location: Any) -> NativeHdf5Reader:
    """Open the volume without libhdf5's reads."""
    reader = open_reader(Location(f"{server.url}/{name}", "deep/full", axes="DHW", **location))
    assert isinstance(reader, NativeHdf5Reader)
    return reader


def counted(reader: NativeHdf5Reader | Hdf5Reader) -> Counts:
    """Return what was asked of the server so far."""
    assert reader.traffic is not None
    return reader.traffic.counts()


def failure(reader: Any, box: Box | None = None) -> tuple[type[Exception], str]:
    """Read; return what was raised."""
    info = reader.describe()
    box = box or info.whole
    try:
        reader.read_into(box, np.empty((1, *box.shape), info.native_dtype))
    except (DataError, StorageError) as error:
        return type(error), str(error)
    raise AssertionError("no error")


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("kind", STORAGE)
def test_any_box_equals_h5py(laws: ModuleType, server: Any, kind: str) -> None:
    """Chunks and rows by ranges are the voxels that h5py reads from the file itself; so are lists and vectors."""
    volume = publish(server, laws, kind)
    reader = open_native(server)
    assert reader.describe().route == "native"
    laws.check_description(reader, volume[np.newaxis])
    laws.check_some_boxes(reader, volume[np.newaxis])
    laws.check_threads(reader, volume[np.newaxis])
    laws.check_refusals(reader)
    laws.check_cost(reader)
    url = f"{server.url}/x.h5"
    assert find_format(url).datasets(url) == ("deep/full",)
    assert find_format(url).read_vector(url, "targets").tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    "storage",
    [{"chunks": (16, 64, 64)}, {"chunks": (16, 64, 64), "compression": "gzip", "compression_opts": 1}, {}],
    ids=["raw", "gzip", "contiguous"],
)
def test_an_octant_takes_its_metadata_blocks_and_its_coalesced_ranges(server: Any, storage: dict[str, Any]) -> None:
    """The server counts: one request to recognise the file, a block or two of metadata, and one range for an octant.

    The octant's bytes lie within 16 MiB and without gaps of 1 MiB, so they are one request.
    """
    volume = np.random.default_rng(0).integers(0, 2**12, (128, 128, 128)).astype("<i2")
    with h5py.File(server.folder / "x.h5", "w") as file:
        file.create_dataset("deep/full", data=volume, **storage)
    reader = open_native(server)
    assert len(server.paths) == 2
    octant = Box((64, 0, 64), (128, 64, 128))
    out = np.empty((1, 64, 64, 64), "<i2")
    size = (server.folder / "x.h5").stat().st_size
    for most_requests, most_bytes in ((2, BLOCK_BYTES), (1, 0)):  # the index is asked for by the first read only
        server.forget()
        before = counted(reader)
        reader.read_into(octant, out)
        assert np.array_equal(out[0], volume[octant.slices])
        taken = counted(reader) - before
        assert taken.requests == len(server.paths) <= most_requests
        assert taken.bytes <= most_bytes + size // 2  # the upper half of the file, and never the whole


def test_what_a_url_is_costs_one_request(laws: ModuleType, server: Any) -> None:
    """A file is recognised by its first bytes, and a Zarr hierarchy by its first object, as its name suggests."""
    publish(server, laws)
    (server.folder / "x.zarr").mkdir()
    (server.folder / "x.zarr/zarr.json").write_text("{}")
    for name in ("x.h5", "x.zarr"):
        server.forget()
        assert isinstance(find_format(f"{server.url}/{name}"), ZarrFormat) == (name == "x.zarr")
        assert len(server.paths) == 1
    (server.folder / "x.h5").rename(server.folder / "download")
    server.forget()
    assert find_format(f"{server.url}/download").name == "HDF5"
    assert server.paths == [f"/download{mark}" for mark in ("/zarr.json", "/.zarray", "/.zgroup", "")]


@pytest.mark.parametrize("block", [512, 2**17])
def test_a_user_block_moves_everything(laws: ModuleType, server: Any, block: int) -> None:
    """The superblock may lie beyond what is looked at first; offsets are counted from it."""
    volume = publish(server, laws, userblock_size=block)
    assert laws.same_bits(laws.read(open_native(server), Box.whole(SHAPE))[0], volume)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("kind", ["500", "reset", "short"])
@pytest.mark.parametrize("storage", ["gzip", "contiguous"])
def test_every_third_request_failing_loses_nothing(laws: ModuleType, server: Any, storage: str, kind: str) -> None:
    """Metadata and voxels survive a server that fails every third request, and every repetition is counted."""
    volume = publish(server, laws, storage)
    server.trouble = lambda number, _path: "" if number % 3 else kind
    reader = open_native(server)
    for box in (Box((6, 6, 6), (20, 20, 16)), Box.whole(SHAPE), Box((0, 0, 0), (8, 20, 16))):
        assert laws.same_bits(laws.read(reader, box)[0], volume[box.slices])
    assert server.failed >= 2
    claim = 1  # asked through a store of its own
    assert claim <= len(server.paths) - counted(reader).requests <= 2 * claim
    assert counted(reader).retries >= server.failed - claim


def test_trouble_with_metadata_is_the_storages_fault(laws: ModuleType, server: Any) -> None:
    """What h5py's file raises comes out as it is, not as damage."""
    publish(server, laws)
    server.trouble = lambda number, _path: "403" if number > 1 else ""
    with pytest.raises(StorageError, match="credentials"):
        open_native(server)


@pytest.mark.parametrize("kind", ["gzip", "contiguous"])
@pytest.mark.parametrize("tag", ['"{}"', 'W/"{}"', ""], ids=["strong", "weak", "date only"])
def test_an_object_that_changes_is_refused(laws: ModuleType, server: Any, tag: str, kind: str) -> None:
    """Chunks of another file than the table was read of are never pasted, whatever the server tells of versions."""
    volume = publish(server, laws, kind)
    server.tag = tag
    reader = open_native(server)
    assert laws.same_bits(laws.read(reader, Box.whole(SHAPE))[0], volume)
    path = server.folder / "x.h5"
    path.write_bytes(path.read_bytes() + b"more")
    found, message = failure(reader)
    assert found is DataError
    assert "changed since it was opened" in message
    assert "x.h5" in message


def test_an_object_that_changes_under_its_metadata_is_refused(laws: ModuleType, server: Any) -> None:
    """An index that is only asked for by the first read is that of the file that was opened, or none."""
    with h5py.File(server.folder / "x.h5", "w") as file:
        file.create_dataset("zeros", data=np.zeros(2 * BLOCK_BYTES, "u1"))
        file.create_dataset("deep/full", data=laws.voxels(SHAPE), chunks=CHUNKS)
    reader = open_native(server)
    path = server.folder / "x.h5"
    path.write_bytes(path.read_bytes() + b"more")
    found, message = failure(reader)
    assert found is DataError
    assert "changed since it was opened" in message


def test_a_file_cut_short_is_damage(laws: ModuleType, server: Any) -> None:
    """libhdf5 refuses it when it is opened."""
    publish(server, laws)
    path = server.folder / "x.h5"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="truncated file"):
        open_native(server)


def test_what_is_not_there_is_said(laws: ModuleType, server: Any) -> None:
    """A wrong URL and a wrong name are the caller's; something else at the URL is no volume; one is being written."""
    publish(server, laws)
    with pytest.raises(NotFoundError, match=r"y\.h5: found no such object"):
        open_native(server, "y.h5")
    with pytest.raises(NotFoundError, match=r"no dataset 'x', expected one of \['deep/full'\]"):
        open_reader(Location(f"{server.url}/x.h5", "x"))
    for name, content in (("text", b"no volume\n" * 10**5), ("empty", b"")):
        (server.folder / name).write_bytes(content)
        with pytest.raises(UsageError, match="no volume that any reader knows"):
            open_reader(Location(f"{server.url}/{name}"))


def test_a_server_that_ignores_ranges_is_refused(laws: ModuleType, server: Any) -> None:
    """It would send whole files for each chunk."""
    publish(server, laws)
    server.knows_ranges = False
    with pytest.raises(StorageError, match="ignores byte ranges"):
        open_native(server)


def test_a_file_that_is_open_for_writing_is_not_read_natively(laws: ModuleType, server: Any) -> None:
    """Its flags are looked at as those of local files are: an upload may have begun before its writer was done."""
    volume = publish(server, laws, libver="latest")
    path = server.folder / "x.h5"
    with h5py.File(path, "a", libver="latest") as file:
        file.swmr_mode = True
        file.flush()
        data = path.read_bytes()
    path.write_bytes(data)
    reader = open_reader(Location(f"{server.url}/x.h5", "deep/full", axes="DHW"))
    assert reader.describe().route == "h5py: the file is open for writing"
    assert laws.same_bits(laws.read(reader, Box.whole(SHAPE))[0], volume)


@pytest.mark.parametrize("kind", ["gzip", "raw"])
def test_checksums_tell_a_flipped_bit(laws: ModuleType, server: Any, kind: str) -> None:
    """Chunks are compared as they arrive; sums taken over the URL are those of the file itself."""
    volume = publish(server, laws, kind)
    url, path, sums = f"{server.url}/x.h5", server.folder / "x.h5", str(server.folder / "sums.parquet")
    remote = sum_volume(Location(url, "deep/full", axes="DHW"))
    local = sum_volume(Location(str(path), "deep/full", axes="DHW"))
    assert np.array_equal(remote.values, local.values)
    with recording(Path(sums)) as add:
        add(ChecksumRow("s", "x", "", remote))
    checksums = ChecksumSource(sums, "s", "x")
    assert laws.same_bits(laws.read(open_native(server, checksums=checksums), Box.whole(SHAPE))[0], volume)
    with h5py.File(path) as file:
        at = file["deep/full"].id.get_chunk_info_by_coord((8, 0, 0)).byte_offset
    data = bytearray(path.read_bytes())
    data[at + 20] ^= 4
    path.write_bytes(data)
    reader = open_native(server, checksums=checksums)
    assert laws.same_bits(laws.read(reader, Box.whole((8, 20, 16)))[0], volume[:8])
    found, message = failure(reader)
    assert found is DataError
    assert "chunk (1, 0, 0)" in message
    assert "CRC-32C" in message


def test_what_only_libhdf5_decodes_is_read_through_it(laws: ModuleType, server: Any) -> None:
    """Unusual types, compact storage and others go through h5py, over the same requests; virtual ones are refused."""
    volume = laws.voxels((8, 8, 8))
    with h5py.File(server.folder / "x.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 4, 4))
        plist.set_deflate(1)
        odd = h5py.h5t.py_create(volume.dtype).copy()
        odd.set_precision(8 * volume.itemsize - 1)
        packed = h5py.h5d.create(file.id, b"packed", odd, h5py.h5s.create_simple(volume.shape), plist)
        packed.write(h5py.h5s.ALL, h5py.h5s.ALL, volume)
        volume = file["packed"][()]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(volume.shape)
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.py_create(volume.dtype), space, plist)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, volume)
        layout = h5py.VirtualLayout(volume.shape, volume.dtype)
        layout[:] = h5py.VirtualSource("other.h5", "x", volume.shape)
        file.create_virtual_dataset("virtual", layout)
    for name in ("packed", "compact"):
        reader = open_reader(Location(f"{server.url}/x.h5", name, axes="DHW"))
        assert isinstance(reader, Hdf5Reader)
        assert reader.describe().route.startswith("h5py: ")
        laws.check_some_boxes(reader, volume[np.newaxis])
        laws.check_threads(reader, volume[np.newaxis])
        assert counted(reader).requests >= 1
        chunks = reader.stored_chunks()
        assert (chunks is None) == (name == "compact")
        if chunks is not None:
            fetched = chunks.fetch((1, 1, 1))
            assert fetched is not None
            chunks.decode((1, 1, 1), fetched)
        reader.close()
    with pytest.raises(UsageError, match="virtual storage"):
        open_reader(Location(f"{server.url}/x.h5", "virtual", axes="DHW"))


@pytest.fixture
def in_memory() -> Iterator[str]:
    """Give a folder's URL of fsspec's memory file system, which is emptied afterwards."""
    name = uuid.uuid4().hex
    yield f"memory://{name}"
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def put(url: str, data: bytes) -> None:
    """Write an object."""
    with fsspec.open(url, "wb") as file:
        file.write(data)


def test_fsspec_urls_are_read(laws: ModuleType, server: Any, in_memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only fsspec knows is read by the same requests, where its client needs no threads."""
    volume = publish(server, laws)
    data = (server.folder / "x.h5").read_bytes()
    put(f"{in_memory}/x.h5", data)
    reader = open_reader(Location(f"{in_memory}/x.h5", axes="DHW"))
    assert isinstance(reader, NativeHdf5Reader)
    assert laws.same_bits(laws.read(reader, Box.whole(SHAPE))[0], volume)
    put(f"{in_memory}/x.h5", data + b"more")
    assert "changed since it was opened" in failure(reader)[1]
    monkeypatch.setenv("VOXLOAD_URL_SCHEMES", "simplecache")
    with pytest.raises(UsageError, match="wait for ever"):
        open_reader(Location(f"simplecache::{in_memory}/x.h5", "deep/full"))


def test_a_remote_file_is_a_file(in_memory: str) -> None:
    """Any reads at any places give the object's bytes, fewer at its end."""
    content = np.random.default_rng(0).bytes(3 * BLOCK_BYTES + 1000)
    put(f"{in_memory}/x", content)

    @settings(max_examples=30)
    @given(st.lists(st.tuples(st.integers(0, len(content) + 10), st.integers(0, 2 * BLOCK_BYTES)), max_size=5))
    def law(reads: list[tuple[int, int]]) -> None:
        file = RemoteFile(*open_object(f"{in_memory}/x"))
        assert file.seek(-7, os.SEEK_END) == len(content) - 7
        for start, length in reads:
            file.seek(start)
            assert file.read(length) == content[start : start + length]
            assert file.tell() == max(start, min(start + length, len(content)))

    law()


@pytest.mark.long
def test_a_remote_file_reads_ahead_and_forgets(in_memory: str) -> None:
    """Blocks that follow on each other come by ever longer requests; what is kept has a bound."""
    count = 2 * KEPT_BYTES // BLOCK_BYTES
    put(f"{in_memory}/x", b"".join(bytes([number]) * BLOCK_BYTES for number in range(count)))
    data, head = open_object(f"{in_memory}/x")
    file = RemoteFile(data, head)
    before = data.store.traffic.counts()
    for number in range(count):
        assert file.read(BLOCK_BYTES) == bytes([number]) * BLOCK_BYTES
    taken = data.store.traffic.counts() - before
    assert taken.bytes == (count - 1) * BLOCK_BYTES
    ranges = 7  # 2, 4, 8, 16, 16, 16 and 1 blocks
    assert taken.requests == 2 * ranges  # the file system tells versions in answers of their own
    for number, is_kept in ((count - 1, True), (0, False)):
        asked = data.store.traffic.counts()
        file.seek(number * BLOCK_BYTES)
        assert file.read(1) == bytes([number])
        assert (data.store.traffic.counts() == asked) == is_kept
    whole = RemoteFile(*open_object(f"{in_memory}/x"))
    assert len(whole.read(count * BLOCK_BYTES)) == count * BLOCK_BYTES
