"""What libhdf5 told of a file once: used for that very file, and for no other."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support.settled import settle
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.hdf5 import metadata, reader
from voxload.readers.hdf5.metadata import MetadataCache, metadata_cache
from voxload.readers.hdf5.native import NativeHdf5Reader
from voxload.readers.storage.stamp import Stamp

pytestmark = pytest.mark.usefixtures("no_leaks")

OLD = (10**18, 10**18)
FUTURE = 2**62
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (2, 2, 2)},
    "gzip": {"chunks": (4, 4, 3), "compression": "gzip", "shuffle": True, "fletcher32": True},
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know nothing when a test begins."""
    monkeypatch.setattr(metadata, "_known", MetadataCache(2**20))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths that libhdf5 was asked about."""
    asked: list[str] = []
    ask = reader.Hdf5Reader.__init__

    def note(self: reader.Hdf5Reader, location: Location, *arguments: Any, **words: Any) -> None:
        asked.append(location.path)
        ask(self, location, *arguments, **words)

    monkeypatch.setattr(reader.Hdf5Reader, "__init__", note)
    return asked


def write(path: Path, values: np.ndarray[Any, Any], layout: str = "gzip", *, times: tuple[int, int] = OLD) -> Location:
    """Write a dataset "x", old enough to be kept in mind."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, **LAYOUTS[layout])
    os.utime(path, ns=times)
    settle(path)
    return Location(str(path), "x", axes="DHW")


def read(location: Location, missing: str = "error") -> np.ndarray[Any, Any]:
    """Open it, read all and close it."""
    volume = open_reader(location, missing=missing)
    try:
        info = volume.describe()
        out = np.empty(info.shape, info.native_dtype)
        volume.read_into(info.whole, out)
        found: np.ndarray[Any, Any] = out[0]
    finally:
        volume.close()
    return found


def open_in_libhdf5() -> set[str]:
    """Return the files that libhdf5 has open in this process: those of tests before this one may be among them."""
    return {os.fsdecode(h5py.h5f.get_name(each)) for each in h5py.h5f.get_obj_ids(types=h5py.h5f.OBJ_FILE)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_is_asked_of_libhdf5_once(laws: ModuleType, tmp_path: Path, opened: list[str], layout: str) -> None:
    """Opened again it keeps the laws of readers, and nobody asks libhdf5, whose lock all threads would share."""
    values = laws.voxels((6, 4, 5))
    location = write(tmp_path / "x.h5", values, layout)
    assert laws.same_bits(read(location), values)
    again = open_reader(location)
    laws.check_reader(again, values[np.newaxis])
    again.close()
    with pytest.raises(UsageError, match="closed reader"):
        again.cost(Box.whole((6, 4, 5)))
    assert laws.same_bits(read(location), values)
    assert opened == [location.path]


def test_libhdf5_keeps_no_file_open(tmp_path: Path) -> None:
    """Once it has told where the chunks are, its handle is closed: one that is left at exit waits for h5py's lock."""
    location = write(tmp_path / "x.h5", np.arange(120, dtype="<i2").reshape(6, 4, 5))
    volume = open_reader(location)
    assert isinstance(volume, NativeHdf5Reader)
    assert location.path in open_in_libhdf5()
    with ThreadPoolExecutor(4) as pool:  # all of them need it first
        costs = set(pool.map(lambda _: volume.cost(volume.describe().whole), range(4)))
    assert len(costs) == 1
    assert location.path not in open_in_libhdf5()
    volume.close()


def test_another_file_is_asked_about_anew(tmp_path: Path, opened: list[str]) -> None:
    """A file that was written to or replaced, other axes and another name are other volumes."""
    values = np.arange(64, dtype="<i2").reshape(4, 4, 4)
    location = write(tmp_path / "x.h5", values)
    read(location)
    write(tmp_path / "x.h5", values + 1, times=(OLD[0], OLD[1] + 1))
    assert np.array_equal(read(location), values + 1)
    write(tmp_path / "y.h5", values + 2)
    (tmp_path / "y.h5").replace(tmp_path / "x.h5")
    settle(tmp_path / "x.h5")
    assert np.array_equal(read(location), values + 2)
    turned = read(Location(location.path, "x", axes="WHD"))
    assert np.array_equal(turned, (values + 2).transpose(2, 1, 0))
    assert len(opened) == 4


def test_what_was_written_just_now_is_not_kept(tmp_path: Path, opened: list[str]) -> None:
    """Within a tick of the file system's clock a file may change and keep its time."""
    values = np.arange(64, dtype="<i2").reshape(4, 4, 4)
    location = write(tmp_path / "x.h5", values)
    os.utime(tmp_path / "x.h5", ns=(FUTURE, FUTURE))
    assert np.array_equal(read(location), values)
    assert np.array_equal(read(location), values)
    assert len(opened) == 2


def test_a_file_that_is_opened_for_writing_is_left_to_libhdf5(tmp_path: Path) -> None:
    """Also one that was finished when it was asked about, and has its old time of writing still."""
    location = write(tmp_path / "x.h5", np.arange(64, dtype="<i2").reshape(4, 4, 4))
    read(location)
    with (tmp_path / "x.h5").open("r+b") as file:
        file.seek(20)
        file.write(b"\x01")  # as a writer marks it
    os.utime(tmp_path / "x.h5", ns=OLD)
    settle(tmp_path / "x.h5")
    assert metadata_cache().find(location, Stamp.of(location.path)) is None
    volume = open_reader(location)
    assert not isinstance(volume, NativeHdf5Reader)
    volume.close()


def test_missing_chunks_stay_missing(tmp_path: Path) -> None:
    """What is done about them is up to each reader, and not kept."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (4, 4, 4), "<i2", chunks=(2, 2, 2), fillvalue=5)[:2] = 1
    os.utime(tmp_path / "x.h5", ns=OLD)
    settle(tmp_path / "x.h5")
    location = Location(str(tmp_path / "x.h5"), "x", axes="DHW")
    for _ in range(2):
        assert read(location, "fill")[2:].tolist() == [[[5] * 4] * 4] * 2
        with pytest.raises(DataError, match="never written"):
            read(location)


def test_what_is_kept_is_bounded(tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was used longest ago makes room."""
    values = np.arange(64, dtype="<i2").reshape(4, 4, 4)
    locations = [write(tmp_path / f"{name}.h5", values) for name in "abc"]
    read(locations[0])
    learnt = metadata_cache().find(locations[0], Stamp.of(locations[0].path))
    assert learnt is not None
    monkeypatch.setattr(metadata, "_known", MetadataCache(2 * learnt.nbytes))
    opened.clear()
    for place in (0, 1, 0, 2, 0, 1):
        read(locations[place])
    assert [Path(path).stem for path in opened] == ["a", "b", "c", "b"]
