"""Chunk tables and their sidecars: right, kept, bounded, and never trusted for another file."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support.settled import settle
from voxload.errors import DataError
from voxload.readers import Location, open_reader
from voxload.readers.hdf5 import tablecache
from voxload.readers.hdf5 import tablecache as sidecar_module
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.tablecache import Sidecar, Tables, cache_folder
from voxload.readers.storage.stamp import Stamp

pytestmark = pytest.mark.usefixtures("no_leaks")

OLD = (10**18, 10**18)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep sidecars of every table in a folder of the test's own."""
    monkeypatch.setenv("VOXLOAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("VOXLOAD_CHUNK_TABLES", raising=False)
    monkeypatch.setattr(tablecache, "MIN_CHUNKS", 1)
    return tmp_path / "cache" / "chunk-tables"


def write(path: Path, **options: Any) -> None:
    """Write a dataset "x" of 3 x 2 x 2 chunks, one of them missing and one without its filter; old enough."""
    values = np.random.default_rng(0).integers(0, 99, (6, 4, 4)).astype("<i2")
    with h5py.File(path, "w", **options) as file:
        dataset = file.create_dataset("x", values.shape, "<i2", chunks=(2, 2, 2), compression="gzip")
        dataset[:4] = values[:4]
        dataset[4:, :2] = values[4:, :2]
        dataset.id.write_direct_chunk((2, 2, 0), values[2:4, 2:, :2].tobytes(), filter_mask=1)
    os.utime(path, ns=OLD)
    settle(path)


@contextmanager
def opened(path: Path) -> Iterator[tuple[h5py.Dataset, Stamp]]:
    """Give the dataset and the stamp of its file."""
    stamp = Stamp.of(str(path))
    with h5py.File(path) as file:
        yield file["x"], stamp


def same(one: ChunkTable, other: ChunkTable) -> bool:
    """Tell whether two tables are equal."""
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) and getattr(one, name).dtype == kind
        for name, kind in (("offsets", "u8"), ("sizes", "i8"), ("masks", "u4"))
    )


@pytest.mark.parametrize("options", [{}, {"libver": "latest"}, {"userblock_size": 512}])
def test_the_table_is_what_h5py_says_of_each_chunk(tmp_path: Path, options: dict[str, Any]) -> None:
    """Offsets, sizes and masks are those of the file; -1 and 0 stand for a chunk that was never written."""
    write(tmp_path / "x.h5", **options)
    with opened(tmp_path / "x.h5") as (dataset, stamp):
        table = ChunkTable.read(dataset)
        found = [dataset.id.get_chunk_info(index) for index in range(dataset.id.get_num_chunks())]
        table.check("x", stamp.size)
    assert len(found) == 10
    for chunk in found:
        place = tuple(np.array(chunk.chunk_offset) // 2)
        assert (table.offsets[place], table.sizes[place], table.masks[place]) == (
            chunk.byte_offset,
            chunk.size,
            chunk.filter_mask,
        )
    assert table.masks[1, 1, 0] == 1
    assert table.sizes[2, 1].tolist() == [-1, -1]
    assert table.offsets[2, 1].tolist() == [0, 0]
    assert not any(column.flags.writeable for column in (table.offsets, table.sizes, table.masks))


@pytest.mark.parametrize(
    ("offset", "size"), [(100, 1), (2**64 - 1, 1), (2**64 - 8, 16), (99, 2), (0, 101), (2**63, 2**62)]
)
def test_chunks_outside_the_file_are_named(offset: int, size: int) -> None:
    """A table is checked as a whole, in arithmetic that does not overflow."""
    offsets, sizes = np.full((2, 2, 3), 50, np.uint64), np.full((2, 2, 3), 50, np.int64)
    sizes[0, 0, 0], offsets[0, 0, 0] = -1, 0
    masks = np.zeros((2, 2, 3), np.uint32)
    ChunkTable(offsets.copy(), sizes.copy(), masks, chunk=(1, 1, 1), itemsize=1).check("x.h5:x", 100)
    offsets[1, 0, 2], sizes[1, 0, 2] = offset, size
    table = ChunkTable(offsets, sizes, masks, chunk=(1, 1, 1), itemsize=1)
    with pytest.raises(DataError, match=rf"x.h5:x, chunk \(1, 0, 2\): found {size} bytes at {offset}, expected"):
        table.check("x.h5:x", 100)


def test_a_sidecar_gives_the_table_back(tmp_path: Path, folder: Path) -> None:
    """What is saved is loaded; the next reader asks the file's index no more."""
    write(tmp_path / "x.h5")
    with opened(tmp_path / "x.h5") as (dataset, stamp):
        whole = ChunkTable.read(dataset)
        assert Sidecar(dataset, stamp, folder).load() is None
        assert same(Tables(10**6).load(dataset, stamp), whole)
        assert len(list(folder.iterdir())) == 1
        found = Sidecar(dataset, stamp, folder).load()
        assert found is not None
        assert same(found, whole)
        assert not found.offsets.flags.writeable


def test_tables_come_from_memory_then_from_the_sidecar(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a table is known, chunk_iter is not asked again; a table too large for memory is read from its sidecar."""
    write(tmp_path / "x.h5")
    with opened(tmp_path / "x.h5") as (dataset, stamp):
        whole = Tables(10**6).load(dataset, stamp)
        monkeypatch.setattr(ChunkTable, "read", _never)
        kept = Tables(10**6)
        first = kept.load(dataset, stamp)
        assert same(first, whole)
        assert kept.load(dataset, stamp) is first
        none = Tables(0)
        assert none.load(dataset, stamp) is not none.load(dataset, stamp)
        next(folder.iterdir()).unlink()
        assert kept.load(dataset, stamp) is first
        with pytest.raises(AssertionError, match="index read again"):
            Tables(10**6).load(dataset, stamp)


def _never(_dataset: h5py.Dataset) -> ChunkTable:
    raise AssertionError("index read again")


def _touched(path: Path) -> None:
    os.utime(path, ns=(OLD[0], OLD[1] + 1))


def _replaced(path: Path) -> None:
    other = path.with_name("other.h5")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=OLD)
    other.replace(path)


def _longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"!")
    os.utime(path, ns=OLD)


def _in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(path.read_bytes())
    os.utime(path, ns=OLD)


@pytest.mark.parametrize("change", [_touched, _replaced, _longer, _in_place])
def test_a_sidecar_of_another_file_is_not_trusted(tmp_path: Path, folder: Path, change: Any) -> None:
    """Another time, inode, size or time of change under the same path: the index is read, the sidecar made anew."""
    path = tmp_path / "x.h5"
    write(path)
    with opened(path) as (dataset, stamp):
        Tables(10**6).load(dataset, stamp)
    before = next(folder.iterdir()).read_bytes()
    change(path)
    settle(path)
    with opened(path) as (dataset, stamp):
        assert Sidecar(dataset, stamp, folder).load() is None
        assert same(Tables(10**6).load(dataset, stamp), ChunkTable.read(dataset))
        assert Sidecar(dataset, stamp, folder).load() is not None
    assert next(folder.iterdir()).read_bytes() != before
    assert len(list(folder.iterdir())) == 1


def test_sidecars_tell_paths_and_datasets_apart(tmp_path: Path, folder: Path) -> None:
    """A linked file and a second dataset have sidecars of their own."""
    write(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file.create_dataset("y", data=np.ones((6, 4, 4), "<i2"), chunks=(2, 2, 2), compression="gzip")
    os.utime(tmp_path / "x.h5", ns=OLD)
    os.link(tmp_path / "x.h5", tmp_path / "z.h5")
    settle(tmp_path / "x.h5")
    for path in (tmp_path / "x.h5", tmp_path / "z.h5"):
        with opened(path) as (dataset, stamp):
            other = dataset.file["y"]
            assert not same(Tables(10**6).load(dataset, stamp), Tables(10**6).load(other, stamp))
            assert same(Tables(10**6).load(other, stamp), ChunkTable.read(other))
    assert len(list(folder.iterdir())) == 4


def test_damaged_sidecars_are_ignored_and_rewritten(tmp_path: Path, folder: Path) -> None:
    """Any flipped bit, any cut and any addition make it worthless; the table comes from the file."""
    write(tmp_path / "x.h5")
    with opened(tmp_path / "x.h5") as (dataset, stamp):
        whole = Tables(10**6).load(dataset, stamp)
        path = next(folder.iterdir())
        good = path.read_bytes()
        rng = np.random.default_rng(0)
        bad = [good[:cut] for cut in {0, 5, 9, len(good) - 1, *rng.integers(len(good), size=20).tolist()}]
        bad += [good + b"!", bytes(len(good)), b"{}"]
        for place in range(len(good)):
            bad.append(good[:place] + bytes([good[place] ^ 1 << int(rng.integers(8))]) + good[place + 1 :])
        for content in bad:
            path.write_bytes(content)
            assert Sidecar(dataset, stamp, folder).load() is None
        assert same(Tables(10**6).load(dataset, stamp), whole)
        assert path.read_bytes() == good
        path.unlink()
        path.mkdir()
        assert same(Tables(10**6).load(dataset, stamp), whole)


def test_a_file_just_written_is_not_cached(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a tick of the file system's clock a file may change and keep its time; so may one from the future."""
    write(tmp_path / "x.h5")
    for written in (time.time_ns() + 3600 * 10**9, 2**62):
        os.utime(tmp_path / "x.h5", ns=(written, written))
        with opened(tmp_path / "x.h5") as (dataset, stamp):
            kept = Tables(10**6)
            assert kept.load(dataset, stamp) is not kept.load(dataset, stamp)
    assert not folder.exists()
    monkeypatch.setattr(tablecache, "MIN_CHUNKS", 13)
    os.utime(tmp_path / "x.h5", ns=OLD)
    settle(tmp_path / "x.h5")
    with opened(tmp_path / "x.h5") as (dataset, stamp):
        Tables(10**6).load(dataset, stamp)
    assert not folder.exists()


def test_a_file_that_changes_while_its_table_is_read_leaves_no_sidecar(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that may be half old and half new is an error, and kept nowhere."""
    write(tmp_path / "x.h5")
    read = ChunkTable.read

    def slow(dataset: h5py.Dataset) -> ChunkTable:
        os.utime(tmp_path / "x.h5")
        return read(dataset)

    monkeypatch.setattr(ChunkTable, "read", slow)
    with opened(tmp_path / "x.h5") as (dataset, stamp), pytest.raises(DataError, match="changed since"):
        Tables(10**6).load(dataset, stamp)
    assert not folder.exists()


def test_the_folder_is_bounded(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidecars written longest ago make room, leftovers of killed processes too; too large a table is not kept."""
    for name in "abcd":
        write(tmp_path / f"{name}.h5")
    paths = []
    for age, name in enumerate("abc"):
        with opened(tmp_path / f"{name}.h5") as (dataset, stamp):
            Tables(10**6).load(dataset, stamp)
            paths.append(Sidecar(dataset, stamp, folder).path)
        os.utime(paths[-1], ns=(age + 1, age + 1))
    (folder / ".left-over.chunks").write_bytes(b"!")
    os.utime(folder / ".left-over.chunks", ns=(0, 0))
    monkeypatch.setattr(sidecar_module, "MAX_FOLDER_BYTES", 3 * paths[0].stat().st_size)
    with opened(tmp_path / "d.h5") as (dataset, stamp):
        Tables(10**6).load(dataset, stamp)
        assert sorted(folder.iterdir()) == sorted([*paths[1:], Sidecar(dataset, stamp, folder).path])
        monkeypatch.setattr(sidecar_module, "MAX_FOLDER_BYTES", 10)
        Sidecar(dataset, stamp, folder).path.unlink()
        Tables(10**6).load(dataset, stamp)
        assert sorted(folder.iterdir()) == sorted(paths[1:])


def test_a_folder_that_cannot_be_written_is_no_error(
    laws: ModuleType, tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the folder's place is taken by a file, reads go on; it is said once, for those who debug."""
    (tmp_path / "cache").write_bytes(b"")
    write(tmp_path / "x.h5")
    sidecar_module._tell_once.cache_clear()
    with caplog.at_level(logging.DEBUG):
        for _ in range(2):
            with opened(tmp_path / "x.h5") as (dataset, stamp):
                assert same(Tables(10**6).load(dataset, stamp), ChunkTable.read(dataset))
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert str(folder) in caplog.text
    reader = open_reader(Location(str(tmp_path / "x.h5"), "x"), missing="fill")
    laws.read(reader, reader.describe().whole)
    reader.close()


def test_where_sidecars_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the environment say where, or that there are none."""
    monkeypatch.setenv("VOXLOAD_CHUNK_TABLES", "off")
    assert cache_folder() is None
    monkeypatch.delenv("VOXLOAD_CHUNK_TABLES")
    monkeypatch.setenv("VOXLOAD_CACHE_DIR", "/a")
    assert cache_folder() == Path("/a/chunk-tables")
    monkeypatch.delenv("VOXLOAD_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/b/voxload/chunk-tables")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert cache_folder() == Path("/c/.cache/voxload/chunk-tables")


def test_writers_of_one_sidecar_do_not_mix(tmp_path: Path, folder: Path) -> None:
    """Several writers and readers at once see a whole sidecar or none, and leave no temporary file."""
    write(tmp_path / "x.h5")
    with opened(tmp_path / "x.h5") as (dataset, stamp):
        whole = ChunkTable.read(dataset)
        mine = Sidecar(dataset, stamp, folder)

        def save_often(_turn: int) -> list[ChunkTable | None]:
            found = []
            for _ in range(50):
                mine.save(whole)
                found.append(mine.load())
            return found

        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(save_often, range(4)):
                assert all(table is not None and same(table, whole) for table in found)
    assert list(folder.iterdir()) == [mine.path]
