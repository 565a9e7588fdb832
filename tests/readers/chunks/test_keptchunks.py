"""Decoded chunks that the core keeps by itself: what comes again soon, never older than its file, within a budget."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr

from tests.support.settled import settle
from voxload.core.library import function
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, Reader, open_reader, set_chunk_cache, set_kept_chunks
from voxload.readers.chunks.chunkcache import KEPT_BYTES, kept_chunks
from voxload.readers.team import default_threads, set_threads

Voxels = npt.NDArray[np.int16]
SIDE, CHUNKS = 16, 8
OLD, NEW = (np.random.default_rng(seed).integers(0, 9, (SIDE,) * 3).astype("<i2") for seed in (0, 1))
LUMP = 256
KINDS = ("hdf5", "zarr chunks", "zarr shards")
each_kind = pytest.mark.parametrize("kind", KINDS)
_limit = function("limit_kept_chunks", "n")
_count = function("count_kept_chunks", "w")


@dataclass(frozen=True)
class Figures:
    """What the core's cache did since it was limited last."""

    hits: int
    misses: int
    evictions: int
    chunks: int
    nbytes: int


def figures() -> Figures:
    """Return the figures of the process."""
    numbers = np.zeros(5, np.uint64)
    _count(numbers)
    return Figures(*numbers.tolist())


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    """Begin with nothing kept, and leave the process as it was."""
    _limit(KEPT_BYTES)
    yield
    _limit(KEPT_BYTES)


def store(path: Path, kind: str, voxels: Voxels) -> Location:
    """Write a volume in chunks of 8^3 anew, and wait until whoever writes to it again gives it another stamp."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=voxels, chunks=(8, 8, 8), compression="gzip", shuffle=True)
    else:
        shards = (16, 16, 8) if "shards" in kind else None
        zarr.create_array(path, data=voxels, chunks=(8, 8, 8), shards=shards)
    settle(path)
    return Location(str(path), "x" if kind == "hdf5" else "")


def read(reader: Reader, box: Box | None = None) -> Voxels:
    """Return the voxels of a box, by default all."""
    chosen = box or Box.whole((SIDE,) * 3)
    out = np.full((1, *chosen.shape), -1, np.int16)
    reader.read_into(chosen, out)
    found: Voxels = out[0]
    return found


@each_kind
def test_what_comes_again_is_decoded_twice(tmp_path: Path, kind: str) -> None:
    """The second time a chunk is decoded it is kept, for all readers of its file; the third finds it."""
    location = store(tmp_path / "x", kind, OLD)
    for turn in range(4):
        with closing(open_reader(location)) as reader:
            assert np.array_equal(read(reader), OLD)
        assert figures().chunks == (CHUNKS if turn else 0)
    assert (figures().misses, figures().hits) == (2 * CHUNKS, 2 * CHUNKS)


def test_of_many_chunks_hardly_one_is_forgotten(tmp_path: Path) -> None:
    """Which ones were decoded lately is remembered by a bounded table, in which few are in each other's way."""
    many = 2000
    voxels = np.arange(2 * 2 * 2 * many, dtype="<i2").reshape(2, 2, 2 * many)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=voxels, chunks=(2, 2, 2), compression="gzip")
    settle(tmp_path)
    location = Location(str(tmp_path / "x.h5"), axes="DHW")
    for _ in range(2):
        with closing(open_reader(location)) as reader:
            assert np.array_equal(read(reader, Box.whole(voxels.shape)), voxels)
    # Of 4096 sets of four, 0.6 have more than that, and all of these are forgotten; thirteen such sets never come.
    # By one chunk a place one in nine would be forgotten.
    assert 0.97 * many < figures().chunks <= many


@each_kind
def test_what_does_not_fit_is_never_kept(tmp_path: Path, kind: str) -> None:
    """Chunks that come again only after more than the budget are not kept, and push nothing out.

    By one thread: two may take a chunk late in one read and early in the next.
    """
    location = store(tmp_path / "x", kind, OLD)
    _limit(5 * (1024 + LUMP))
    set_threads(1)
    try:
        with closing(open_reader(location)) as reader:
            for _ in range(4):
                assert np.array_equal(read(reader), OLD)
    finally:
        set_threads(default_threads())
    assert figures() == Figures(hits=0, misses=4 * CHUNKS, evictions=0, chunks=0, nbytes=0)


@each_kind
def test_room_is_what_was_asked_for(tmp_path: Path, kind: str) -> None:
    """A cache of all chunks takes its place, and gives it back; nothing is kept where that was asked for."""
    location = store(tmp_path / "x", kind, OLD)

    def kept() -> tuple[int, int]:
        with closing(open_reader(location)) as reader:
            for _ in range(3):
                assert np.array_equal(read(reader), OLD)
        found = figures().chunks, kept_chunks()
        set_kept_chunks(found[1])
        assert figures().chunks == 0
        return found

    try:
        for room in (0, 2**20):
            set_kept_chunks(room)
            assert kept() == (CHUNKS if room else 0, room)
        set_chunk_cache(2**20)
        assert kept() == (0, 2**20)
        set_chunk_cache(0)
        assert kept() == (CHUNKS, 2**20)
        with pytest.raises(UsageError, match="budget"):
            set_kept_chunks(-1)
    finally:
        set_chunk_cache(0)
        set_kept_chunks(KEPT_BYTES)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("room", range(4, 20))
def test_the_budget_holds_while_many_threads_read(tmp_path: Path, room: int) -> None:
    """Whatever sixteen threads read, no more bytes are kept than the budget, and every voxel is right."""
    location = store(tmp_path / "x", "hdf5", OLD)
    budget = room * (1024 + LUMP) // 2
    _limit(budget)
    boxes = [Box((a, b, c), (a + 8, b + 8, c + 8)) for a in (0, 4, 8) for b in (0, 8) for c in (0, 8)]
    wrong: list[object] = []

    def work(seed: int, reader: Reader) -> None:
        chance = np.random.default_rng(seed)
        for place in chance.integers(0, len(boxes), 60).tolist():
            box = boxes[place]
            if not np.array_equal(read(reader, box), OLD[box.slices]) or figures().nbytes > budget:
                wrong.append((box, figures()))

    with closing(open_reader(location)) as reader:
        threads = [threading.Thread(target=work, args=(seed, reader)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert figures().nbytes == figures().chunks * (1024 + LUMP)


@each_kind
@pytest.mark.parametrize("keeps_time", [False, True], ids=["now", "same time"])
def test_files_written_in_place_never_give_old_voxels(tmp_path: Path, kind: str, *, keeps_time: bool) -> None:
    """The same file with other bytes is another one, though its size and its time of writing be the old ones."""
    location = store(tmp_path / "x", kind, OLD)
    store(tmp_path / "y", kind, NEW)
    with closing(open_reader(location)) as keeper:
        for _ in range(3):
            assert np.array_equal(read(keeper), OLD)
        for file in [tmp_path / "y", *(tmp_path / "y").rglob("*")]:
            target = Path(location.path) / file.relative_to(tmp_path / "y")
            if file.is_file():
                before = target.stat()
                with target.open("r+b") as open_file:
                    open_file.write(file.read_bytes())
                    open_file.truncate()
                if keeps_time:
                    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
        try:
            assert np.array_equal(read(keeper), NEW)  # chunk files are opened at each read
        except DataError as error:
            assert "changed since it was opened" in str(error)  # noqa: PT017 - which of both depends on the storage
    settle(tmp_path / "x")
    for _ in range(3):
        with closing(open_reader(location)) as reader:
            assert np.array_equal(read(reader), NEW)


def test_of_files_written_just_now_nothing_is_kept(tmp_path: Path) -> None:
    """A file may change again within one tick of its clock, and would look the same."""
    for kind in KINDS:
        location = store(tmp_path / kind, kind, OLD)
        for file in [tmp_path / kind, *(tmp_path / kind).rglob("*")]:
            os.utime(file, ns=(2**62, 2**62))  # younger than any moment at which it can be read
        for _ in range(3):
            with closing(open_reader(location)) as reader:
                assert np.array_equal(read(reader), OLD)
    assert figures() == Figures(0, 0, 0, 0, 0)


def test_data_sets_of_one_file_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """Chunks are told apart by their places and by how they are decoded."""
    path = tmp_path / "x"
    with h5py.File(path, "w") as file:
        for name, shuffle in (("x", False), ("y", True)):
            options = {"compression": "gzip", "shuffle": shuffle}
            file.create_dataset(name, data=OLD[:8, :8, :8] + shuffle, chunks=(8, 8, 8), **options)
    settle(path)
    for _ in range(3):
        for name in ("x", "y"):
            with closing(open_reader(Location(str(path), name))) as reader:
                out = np.zeros((1, 8, 8, 8), np.int16)
                reader.read_into(Box.whole((8, 8, 8)), out)
                assert np.array_equal(out[0], OLD[:8, :8, :8] + (name == "y"))
