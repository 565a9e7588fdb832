"""Data that were written anew between two jobs: the next one gives what is stored then, and reads no more than it must.

Each job is a process of its own, and what it gives is compared with plain h5py, zarr-python or numpy.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from tests.support import jobs
from tests.support.jobs import Case, Jobs, Outcome
from tests.support.rangeserver import RangeServer, serving
from tests.support.settled import settle
from voxload.catalog.table import Catalog, Entry
from voxload.readers.remote.objects import Facts
from voxload.readers.storage.stamp import Stamp

Voxels = np.ndarray[Any, Any]
SHAPE = (16, 8, 8)
OLD = np.random.default_rng(0).integers(0, 900, SHAPE).astype("<i2")
NEW = np.random.default_rng(1).integers(0, 900, SHAPE).astype("<i2")
FUTURE = 2**62


def _hdf5(path: Path, voxels: Voxels, **layout: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=voxels, **layout)


def _hdf5_chunks(path: Path, voxels: Voxels) -> None:
    _hdf5(path, voxels, chunks=(4, 8, 8))


def _hdf5_plain(path: Path, voxels: Voxels) -> None:
    _hdf5(path, voxels)


def _hdf5_virtual(path: Path, voxels: Voxels) -> None:
    """Write a folder with a virtual dataset and its source."""
    path.mkdir()
    _hdf5(path / "source.h5", voxels, chunks=(4, 8, 8))
    layout = h5py.VirtualLayout(SHAPE, "<i2")
    layout[:] = h5py.VirtualSource("source.h5", "x", SHAPE)
    with h5py.File(path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("x", layout)


def _zarr(path: Path, voxels: Voxels, **layout: Any) -> None:
    array = zarr.create_array(path, name="x", shape=SHAPE, dtype="<i2", chunks=(4, 8, 8), compressors=None, **layout)
    array[...] = voxels


def _zarr_v2(path: Path, voxels: Voxels) -> None:
    _zarr(path, voxels, zarr_format=2)


def _zarr_chunks(path: Path, voxels: Voxels) -> None:
    _zarr(path, voxels, zarr_format=3)


def _zarr_shards(path: Path, voxels: Voxels) -> None:
    _zarr(path, voxels, zarr_format=3, shards=(8, 8, 8))


def _npy(path: Path, voxels: Voxels) -> None:
    with path.open("wb") as file:
        np.save(file, voxels)


def _raw(path: Path, voxels: Voxels) -> None:
    """Write a folder with headerless data and the catalogue that says what they are."""
    path.mkdir()
    (path / "x.raw").write_bytes(voxels.tobytes())
    entry = Entry("a", "x.raw", "", SHAPE, "<i2", "DHW", voxels.nbytes)
    Catalog.from_entries([entry], path).write(path / "catalog.parquet")


def _hdf5_voxels(path: Path) -> Voxels:
    with h5py.File(path) as file:
        return np.asarray(file["x"][...])


def _zarr_voxels(path: Path) -> Voxels:
    return np.asarray(zarr.open_array(path, path="x", mode="r")[...])


@dataclass(frozen=True)
class Storage:
    """A way of storing a volume."""

    write: Callable[[Path, Voxels], None]
    read: Callable[[Path], Voxels]
    """By the library that it is compared with."""
    dataset: str = "x"
    inside: str = ""
    """What is opened, of the folder that is written."""


STORAGES = {
    "hdf5-chunks": Storage(_hdf5_chunks, _hdf5_voxels),
    "hdf5-plain": Storage(_hdf5_plain, _hdf5_voxels),
    "hdf5-virtual": Storage(_hdf5_virtual, _hdf5_voxels, inside="virtual.h5"),
    "zarr-v2": Storage(_zarr_v2, _zarr_voxels),
    "zarr-chunks": Storage(_zarr_chunks, _zarr_voxels),
    "zarr-shards": Storage(_zarr_shards, _zarr_voxels),
    "npy": Storage(_npy, np.load, dataset=""),
    "raw": Storage(_raw, lambda path: np.fromfile(path.parent / "x.raw", "<i2").reshape(SHAPE), "", "catalog.parquet"),
}
SERVED = ("hdf5-chunks", "hdf5-plain", "zarr-v2", "zarr-chunks", "zarr-shards")


def _in_place(target: Path, fresh: Path) -> None:
    """As rsync --inplace -t does, but for the times, which the caller sets back."""
    with target.open("r+b") as file:
        file.write(fresh.read_bytes())


def _recreated(target: Path, fresh: Path) -> None:
    target.unlink()
    target.write_bytes(fresh.read_bytes())


def _renamed_over(target: Path, fresh: Path) -> None:
    fresh.replace(target)


WAYS = {"in place": _in_place, "recreated": _recreated, "renamed over": _renamed_over}


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


@dataclass
class Place:
    """One data set of one sample."""

    case: Case
    path: Path
    """The file or folder that is written."""
    storage: Storage
    rewrite: Callable[[Path, Path], None] = _in_place

    def write_anew(self) -> None:
        """Store other voxels with equally many bytes and the same times of writing."""
        fresh = self.path.with_name("fresh")
        self.storage.write(fresh, NEW)
        for file in _files(self.path):
            status, other = file.stat(), fresh / file.relative_to(self.path) if fresh.is_dir() else fresh
            assert other.stat().st_size == status.st_size
            self.rewrite(file, other)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        shutil.rmtree(fresh) if fresh.is_dir() else fresh.unlink(missing_ok=True)

    def voxels(self) -> Voxels:
        """Return what is stored, by a library."""
        return self.storage.read(self.path / self.storage.inside if self.storage.inside else self.path)


@dataclass
class World:
    """Data sets, and who runs jobs over them."""

    jobs: Jobs
    folder: Path
    server: RangeServer
    places: dict[str, Place] = field(default_factory=dict)

    def add(self, kind: str, name: str, rewrite: Callable[[Path, Path], None], *, served: bool = False) -> Place:
        """Store a data set."""
        storage, path = STORAGES[kind], self.folder / f"{name.replace(' ', '_')}.h5"
        storage.write(path, OLD)
        inside = f"{path.name}/{storage.inside}".rstrip("/")
        source = f"{self.server.url}/{inside}" if served else str(self.folder / inside)
        axes = None if kind == "raw" else "DHW"
        self.places[name] = Place(Case(name, source, storage.dataset, axes), path, storage, rewrite)
        return self.places[name]

    def run(self, *cases: Case) -> dict[str, Outcome]:
        """Run a job over some data sets, by default all, whose files were written a while ago."""
        settle(self.folder)
        return self.jobs.run(cases or [place.case for place in self.places.values()], tier=self.folder.parent / "tier")


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Yield what starts jobs."""
    with jobs.started(tmp_path_factory.mktemp("jobs")) as starter:
        yield starter


@pytest.fixture
def world(starter: Jobs, tmp_path: Path) -> Iterator[World]:
    """Yield a world without data sets."""
    folder = tmp_path / "data"
    folder.mkdir()
    with serving(folder) as server:
        yield World(starter, folder, server)


@pytest.mark.long
def test_the_next_job_gives_what_is_stored_then(world: World) -> None:
    """Whatever way the files were written anew, with their sizes and times kept; what is as it was, comes from disk."""
    for kind in STORAGES:
        for way, rewrite in WAYS.items():
            world.add(kind, f"{kind} {way}", rewrite)
    for kind in SERVED:
        world.add(kind, f"{kind} by URL", _recreated, served=True)
    for reads in (1, 0):
        found = world.run()
        assert {name for name, one in found.items() if one.stored != reads} == set()
        assert all(np.array_equal(one.block, OLD) for one in found.values())
    for place in world.places.values():
        place.write_anew()
        assert np.array_equal(place.voxels(), NEW)
    for reads in (1, 0):
        found = world.run()
        assert {name for name, one in found.items() if not np.array_equal(one.block, NEW)} == set()
        assert {name for name, one in found.items() if one.stored != reads} == set()
    assert not any(one.warned for one in found.values())


@pytest.mark.long
def test_an_assignment_is_seen(world: World) -> None:
    """Voxels that the data's own library writes, and an array that grew, are seen by the next job."""
    places = [world.add(kind, kind, _in_place) for kind in ("hdf5-chunks", "zarr-v2", "zarr-chunks", "zarr-shards")]
    world.run()
    for place in places:
        if place.path.is_file():
            with h5py.File(place.path, "r+") as file:
                file["x"][...] = 2
        else:
            zarr.open_array(place.path, path="x", mode="r+")[...] = 2
    found = world.run()
    assert all((one.block == 2).all() and one.stored == 1 for one in found.values())
    array = zarr.open_array(places[2].path, path="x", mode="r+")
    array.append(np.full((4, 8, 8), 3, "<i2"))
    grown = world.run(places[2].case)["zarr-chunks"].block
    assert np.array_equal(grown, _zarr_voxels(places[2].path))
    assert grown.shape == (20, 8, 8)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("kind", ["zarr-v2", "zarr-chunks", "zarr-shards"])
def test_a_block_is_known_by_all_chunks_of_its_halo_and_by_no_others(world: World, kind: str) -> None:
    """A chunk of which only the halo has voxels counts, over the border of a periodic sample too; others do not."""
    place = world.add(kind, kind, _in_place)
    source = place.case.source
    halo = Case("halo", source, "x", halo=1, blocks=2)  # [0:8] and [8:9]: chunks 0 to 2, shards 0 and 1
    periodic = Case("periodic", source, "x", halo=1, blocks=2, boundary="periodic")  # and chunk 3 by [-1:0]
    centre = Case("centre", source, "x", blocks=2)  # chunks 0 and 1, shard 0
    world.run(halo, periodic, centre)
    voxels = OLD.copy()
    voxels[15] += 1
    array = zarr.open_array(place.path, path="x", mode="r+")
    array[15] = voxels[15]
    found = world.run(halo, periodic, centre)
    counts = {name: one.stored for name, one in found.items()}
    # Of a shard the chunks have one stamp; it is the shard of the halo, too.
    assert counts == {"halo": int(kind == "zarr-shards"), "periodic": 1, "centre": 0}
    assert np.array_equal(found["periodic"].block, voxels[np.r_[15, :9]][:, np.r_[7, :8, 0]][:, :, np.r_[7, :8, 0]])
    voxels[8] += 1
    array[8] = voxels[8]
    found = world.run(halo, periodic, centre)
    assert {name: one.stored for name, one in found.items()} == {"halo": 1, "periodic": 1, "centre": 0}
    assert np.array_equal(found["halo"].block[1:, 1:-1, 1:-1], voxels[:9])
    assert np.array_equal(found["periodic"].block[:, 1:-1, 1:-1], voxels[np.r_[15, :9]])


@pytest.mark.long
def test_without_a_strong_tag_nothing_is_kept_on_disk(world: World) -> None:
    """Each job reads such objects again, and says once that it does; so it does arrays of very many objects."""
    world.server.tag = 'W/"{}"'
    served = [world.add(kind, kind, _recreated, served=True) for kind in ("hdf5-chunks", "zarr-chunks", "zarr-shards")]
    for voxels in (OLD, NEW):
        for _ in range(2):
            found = world.run()
            assert all(np.array_equal(one.block, voxels) for one in found.values())
            assert [one.stored for one in found.values()] == [1, 1, 1]
            assert [len(one.warned) for one in found.values()] == [1, 1, 1]
        for place in served:
            place.write_anew()


@pytest.mark.long
def test_of_too_many_objects_nothing_is_kept_on_disk(world: World) -> None:
    """To ask for their entity tags would take as many requests as to read them."""
    zarr.create_array(world.folder / "x.zarr", name="x", data=OLD, chunks=(2, 2, 2))
    case = Case("many", f"{world.server.url}/x.zarr", "x")
    for _ in range(2):
        found = world.run(case)["many"]
        assert np.array_equal(found.block, OLD)
        assert (found.stored, len(found.warned)) == (1, 1)


def test_what_may_change_within_a_tick_is_not_kept(world: World) -> None:
    """A file that looks as if it was written just now may be written again and look the same."""
    places = [world.add(kind, kind, _in_place) for kind in ("hdf5-chunks", "zarr-chunks", "zarr-shards", "npy")]
    for place in places:
        for file in _files(place.path):
            os.utime(file, ns=(FUTURE, FUTURE))
    for _ in range(2):
        found = world.jobs.run([place.case for place in places], tier=world.folder.parent / "tier")
        assert [one.stored for one in found.values()] == [1] * len(places)


def test_a_kept_chunk_table_is_not_taken_for_that_of_a_file_written_in_place(world: World) -> None:
    """Its chunks lie elsewhere in as many bytes, with the same time of writing."""
    shape, chunk = (32, 32, 64), (4, 4, 2)  # as many as tables are kept of

    def write(path: Path, value: int, order: int) -> None:
        with h5py.File(path, "w", libver="latest") as file:
            dataset = file.create_dataset("x", shape, "<i2", chunks=chunk)
            for number, place in enumerate(list(np.ndindex(8, 8, 32))[::order]):
                start = tuple(index * width for index, width in zip(place, chunk, strict=True))
                dataset.id.write_direct_chunk(start, np.full(chunk, value + number, "<i2").tobytes())

    path, other = world.folder / "x.h5", world.folder.parent / "y.h5"
    write(path, 1, 1)
    write(other, 5000, -1)
    case = Case("table", str(path), "x", has_cache=False)
    for _ in range(2):
        assert np.array_equal(world.run(case)["table"].block, _hdf5_voxels(path))
    status = path.stat()
    assert other.stat().st_size == status.st_size
    _in_place(path, other)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert np.array_equal(world.run(case)["table"].block, _hdf5_voxels(other))


def test_a_stamp_is_settled_once_the_clock_of_its_file_has_moved_on(tmp_path: Path) -> None:
    """What counts is the moment at which it is taken, and not when somebody asks; of whole seconds, five."""
    path = tmp_path / "x"
    path.write_bytes(b"x")
    os.utime(path, ns=(1, 1))
    changed = path.stat().st_ctime_ns
    assert not Stamp.of(str(path), since=changed + 10**7).is_settled
    assert Stamp.of(str(path), since=changed + 10**9).is_settled
    young, later = Stamp.of(str(path), since=changed), Stamp.of(str(path), since=changed + 10**9)
    assert young == later
    assert not young.is_settled


@pytest.mark.parametrize(
    ("url", "age", "is_settled"),
    [("http://a/x", 0, False), ("http://a/x", 3600, True), ("s3://a/x", 0, True), ("https://a/x", None, True)],
)
def test_the_tag_of_a_web_server_is_trusted_once_it_is_old(url: str, age: float | None, is_settled: bool) -> None:
    """Its tag may be a time in whole seconds; object stores never give two contents one tag."""
    modified = None if age is None else time.time() - age
    assert Facts.told(url, 1, '"x"', modified).is_settled is is_settled
