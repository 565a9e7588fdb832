"""Handles: bounded, shared by threads, never by processes."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from weakref import WeakSet

import h5py
import numpy as np
import pytest
import zarr

from tests.support import processes
from tests.support.openfiles import open_files
from tests.support.settled import settle
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box
from voxload.readers import Handles, Location, Missing, handles, open_reader, protocol
from voxload.readers.protocol import Reader

pytestmark = pytest.mark.usefixtures("no_leaks")

FIRST = Box((0, 0, 0), (1, 1, 1))


@pytest.fixture
def places(tmp_path: Path) -> list[Location]:
    """Six HDF5 files; every voxel of file i is i."""
    for index in range(6):
        with h5py.File(tmp_path / f"{index}.h5", "w") as file:
            file["x"] = np.full((4, 4, 4), index, "<i2")
    settle(tmp_path)
    return [Location(str(tmp_path / f"{index}.h5")) for index in range(6)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Location]:
    """Count what is really opened."""
    seen: list[Location] = []
    real = open_reader

    def counted(location: Location, *, missing: Missing) -> Reader:
        seen.append(location)
        return real(location, missing=missing)

    monkeypatch.setattr(handles, "open_reader", counted)
    return seen


def value(held: Handles, place: Location) -> int:
    """Read the first voxel."""
    out = np.empty((1, 1, 1, 1), "<i2")
    with held.lease(place) as reader:
        reader.read_into(FIRST, out)
    return int(out[0, 0, 0, 0])


def count_open(places: list[Location]) -> int:
    """Count the files that this process has open; a reader may have several descriptors of its own."""
    names = {place.path for place in places}
    return len(open_files().keys() & names)


def test_a_reader_is_opened_once_and_used_again(places: list[Location], opened: list[Location]) -> None:
    """The second lease of a location is the same reader."""
    held = Handles("error")
    with held.lease(places[0]) as first, held.lease(places[0]) as second:
        assert first is second
    assert [value(held, places[0]) for _ in range(3)] == [0, 0, 0]
    assert opened == [places[0]]
    held.close()
    assert count_open(places) == 0
    assert value(held, places[0]) == 0
    assert len(opened) == 2
    held.close()


def test_the_least_recently_used_is_closed(places: list[Location], opened: list[Location]) -> None:
    """Beyond its capacity it closes what was not used for longest, and no more."""
    held = Handles("error", capacity=2)
    for index in (0, 1, 0, 2, 0, 1):
        assert value(held, places[index]) == index
        assert count_open(places) <= 2
    assert opened == [places[0], places[1], places[2], places[1]]
    held.close()


def test_what_readers_hold_is_bounded_too(
    places: list[Location], opened: list[Location], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what each says that it holds by now, or by what one that says nothing is counted for."""
    held = Handles("error")
    with held.lease(places[0]) as reader:
        each = protocol.held_bytes(reader)
    assert 0 < each < 2**20
    monkeypatch.setattr(handles, "HELD_BYTES", 3 * each)
    for index in (0, 1, 2, 0, 3, 0, 1):
        assert value(held, places[index]) == index
        assert count_open(places) <= 3
    assert opened == [places[index] for index in (0, 1, 2, 3, 1)]
    monkeypatch.setattr(handles, "HELD_BYTES", 2 * 2**20)
    monkeypatch.delattr(type(reader), "held_bytes")
    for index in (0, 1, 2):
        assert value(held, places[index]) == index
    assert count_open(places) == 2
    held.close()
    assert count_open(places) == 0
    assert held._held == 0


def test_readers_are_as_many_as_descriptors_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of those that the process may have, less for each further set, and a bound where there is none."""
    others = WeakSet[Handles]()
    monkeypatch.setattr(handles, "_ALL", others)
    for soft, expected in ((1024, 128), (3, 16), (10**6, 4096), (resource.RLIM_INFINITY, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        others.clear()
        first = Handles("error")
        assert first._capacity == expected
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    others.clear()
    several = [Handles("error") for _ in range(20)]
    assert [one._capacity for one in several[:3]] == [128, 64, 42]
    assert sum(one._capacity for one in several) < 1024 // 2 + 20 * 16
    copied = pickle.loads(pickle.dumps(Handles("error", capacity=7)))  # noqa: S301 - its own bytes
    assert copied._capacity == 7


def test_a_reader_in_use_is_never_closed(places: list[Location]) -> None:
    """Leases above the capacity keep their readers open; afterwards the bound holds again."""
    held = Handles("error", capacity=1)
    out = np.empty((1, 1, 1, 1), "<i2")
    with held.lease(places[0]) as reader:
        for index in range(1, 6):
            assert value(held, places[index]) == index
        reader.read_into(FIRST, out)
    assert count_open(places) == 1
    held.close()


def test_closing_leaves_a_reader_in_use_to_its_last_user(places: list[Location], opened: list[Location]) -> None:
    """What is read when all is closed, as a loader does that was dropped, is right; nothing stays open behind it."""
    held = Handles("error")
    out = np.empty((1, 1, 1, 1), "<i2")
    assert value(held, places[1]) == 1
    with held.lease(places[2]) as reader, held.lease(places[2]):
        held.close()
        with ExitStack() as others:
            for place in places:  # each takes a descriptor that is free
                others.enter_context(Path(place.path).open("rb"))
            reader.read_into(FIRST, out)
        assert out.item() == 2
        assert count_open(places) == 1
        assert value(held, places[2]) == 2
        assert opened == [places[1], places[2], places[2]]
        held.close()
        assert count_open(places) == 1
    assert count_open(places) == 0


def test_threads_open_a_location_once(places: list[Location], opened: list[Location]) -> None:
    """Eight threads that ask for one location at the same moment share one opening."""
    held = Handles("error")
    gate = threading.Barrier(8)

    def work(_: int) -> int:
        gate.wait(timeout=processes.LIMIT)
        return value(held, places[3])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [3] * 8
    assert opened == [places[3]]
    held.close()


def test_threads_keep_the_bound_and_the_bytes(places: list[Location]) -> None:
    """Many threads over more files than may be open: right bytes, and capacity plus threads at most."""
    held = Handles("error", capacity=2)

    def work(turn: int) -> tuple[int, int]:
        return value(held, places[turn % 6]), count_open(places)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(120)))
    assert [read for read, _ in found] == [turn % 6 for turn in range(120)]
    assert max(count for _, count in found) <= 2 + 4
    assert count_open(places) == 2
    held.close()


def test_a_failed_opening_is_forgotten(places: list[Location], tmp_path: Path) -> None:
    """A file that was not there may come; until then each lease says that it is missing."""
    held = Handles("error")
    late = Location(str(tmp_path / "late.h5"))
    for _ in range(2):
        with pytest.raises(NotFoundError, match=r"late\.h5"), held.lease(late):
            pass
    os.link(places[4].path, late.path)
    assert value(held, late) == 4
    held.close()


def test_threads_all_learn_of_a_failure(tmp_path: Path) -> None:
    """Every thread that waited for a failing opening gets the error."""
    held = Handles("error")

    def work(_: int) -> str:
        try:
            return str(value(held, Location(str(tmp_path / "no.h5"))))
        except NotFoundError as error:
            return type(error).__name__

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == ["NotFoundError"] * 8


def test_a_copy_by_pickle_has_nothing_open(places: list[Location], opened: list[Location]) -> None:
    """What crosses to a spawned process is the policy and the bound, no file."""
    held = Handles("fill", capacity=3)
    value(held, places[0])
    copy = pickle.loads(pickle.dumps(held))  # noqa: S301 - our own bytes
    assert count_open(places) == 1
    assert value(copy, places[0]) == 0
    assert opened == [places[0]] * 2
    copy.close()
    held.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning", "ignore:this process is forked")
def test_a_forked_child_starts_anew(places: list[Location], opened: list[Location]) -> None:
    """A child opens its own files even when the parent forked inside a lease, while a thread was opening another."""
    held = Handles("error")
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with held.lease(places[1]):
            inside.set()
            leave.wait(timeout=processes.LIMIT)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(timeout=processes.LIMIT)
    try:
        with held.lease(places[0]), held._lock:
            child = os.fork()
            if child == 0:
                ok = False
                signal.alarm(30)  # a child that waits for a lock of its parent's must not wait for ever
                try:
                    before = len(opened)
                    ok = [value(held, place) for place in places[:3]] == [0, 1, 2] and len(opened) == before + 3
                finally:
                    os._exit(0 if ok else 1)
        _, status = os.waitpid(child, 0)
    finally:
        leave.set()
        thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert value(held, places[0]) == 0
    held.close()


def test_a_file_whose_rights_changed_is_opened_anew(places: list[Location], opened: list[Location]) -> None:
    """Who has it still reads what was there, and is refused the rest; nothing is left open when that is over."""
    held = Handles("error")
    with held.lease(places[0]) as old:
        Path(places[0].path).chmod(0o600)
        with held.lease(places[0]) as new:
            assert new is not old
        assert value(held, places[0]) == 0
        with pytest.raises(DataError, match="changed since it was opened"):
            old.read_into(FIRST, np.empty((1, 1, 1, 1), "<i2"))
    assert value(held, places[0]) == 0
    assert 2 <= len(opened) <= 3  # once more where it was opened at the very moment of the change
    held.close()
    assert count_open(places) == 0


@pytest.mark.parametrize("kind", ["hdf5", "zarr", "shards", "npy"])
def test_a_file_written_in_place_with_its_times_kept_is_opened_anew(tmp_path: Path, kind: str) -> None:
    """What an open reader remembers of it, such as where its chunks lie, is of no use any more."""

    def write(path: Path, first: int) -> None:
        voxels = np.full((4, 4, 4), first, "<i2")
        if kind == "hdf5":
            with h5py.File(path, "w") as file:
                file.create_dataset("x", data=voxels, chunks=(2, 2, 2))
        elif kind == "npy":
            with path.open("wb") as npy:
                np.save(npy, voxels)
        else:
            shards = (4, 4, 4) if kind == "shards" else None
            names = ("d", "h", "w")
            zarr.create_array(path, data=voxels, chunks=(2, 2, 2), shards=shards, dimension_names=names)

    path, other = tmp_path / "x", tmp_path / "y"
    write(path, 1)
    write(other, 2)
    settle(tmp_path)
    held = Handles("error")
    place = Location(str(path), axes="DHW")
    assert value(held, place) == 1
    for file in [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]:
        status, fresh = file.stat(), other / file.relative_to(path) if path.is_dir() else other
        assert fresh.stat().st_size == status.st_size
        with file.open("r+b") as target:
            target.write(fresh.read_bytes())
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert value(held, place) == 2
    held.close()


def test_an_array_whose_metadata_were_written_anew_is_opened_anew(tmp_path: Path) -> None:
    """The same bytes are other voxels where another type or order of bytes says so."""
    names = ("d", "h", "w")
    path = tmp_path / "x"
    zarr.create_array(
        path, data=np.full((4, 4, 4), 1, "<i2"), chunks=(4, 4, 4), compressors=None, dimension_names=names
    )
    settle(path)
    held = Handles("error")
    place = Location(str(path))
    assert value(held, place) == 1
    text = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(text.replace('"little"', '"big"'))
    assert value(held, place) == 256
    held.close()


def test_a_misspelt_policy_is_refused() -> None:
    """A policy that is neither error nor fill is no silent fill."""
    with pytest.raises(UsageError, match="'errors'"):
        Handles("errors")


def test_nothing_is_read_through_a_fill_that_was_not_asked_for(tmp_path: Path) -> None:
    """The policy reaches the reader."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (4, 4, 4), "<i2", fillvalue=-3)
    place = Location(str(tmp_path / "x.h5"))
    filling = Handles("fill")
    assert value(filling, place) == -3
    filling.close()
    strict = Handles("error")
    with pytest.raises(ValueError, match="no value ever written"):
        value(strict, place)
    strict.close()
