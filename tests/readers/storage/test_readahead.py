"""Read-ahead: what a read will want is announced in order and once, and only where it is not in memory."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from tests.support import processes
from voxload.benchmark.cold.pagecache import file_system
from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.remote.fetchers import fetchers
from voxload.readers.scratch import Bytes
from voxload.readers.storage import readahead
from voxload.readers.storage.file import FileBytes
from voxload.readers.storage.readahead import FEW, FileRange, announce_all, fetching


@dataclass
class Ledger:
    """A file that notes what is announced of it."""

    path: str = "x"
    has_it: bool = False
    announced: list[tuple[int, int]] = field(default_factory=list)

    def fresh(self, _offset: int, _length: int) -> Bytes:
        """Refuse: nothing reads this."""
        raise AssertionError

    def is_cold(self, _offset: int) -> bool:
        """Tell what the test says."""
        return not self.has_it

    def announce(self, offset: int, length: int) -> None:
        """Note a range."""
        self.announced.append((offset, length))


@given(
    lengths=st.lists(st.integers(0, 3 * readahead.PIECE_BYTES), min_size=FEW, max_size=30),
    holes=st.sets(st.integers(0, 29)),
    window=st.sampled_from([1, 2**18, 2**25]),
)
def test_every_range_is_announced_once_and_in_order(lengths: list[int], holes: set[int], window: int) -> None:
    """Whatever the window, by the last fetch all chunks that are there were announced, none of them late."""
    ledger = Ledger()
    starts = np.cumsum([0, *lengths]).tolist()
    ranges: dict[tuple[int, ...], FileRange | None] = {
        (number,): None if number in holes else FileRange(ledger, start, length)
        for number, (start, length) in enumerate(zip(starts, lengths, strict=False))
    }
    places = list(ranges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readahead, "WINDOW_BYTES", window)
        patch.setattr(readahead, "probed", lambda found: found)
        fetch = fetching(places, lambda place: ranges[place], lambda place: place)
        for place in places:
            found = ranges[place]
            if found is not None and found.length:
                assert any(start <= found.offset < start + length for start, length in ledger.announced) or window == 1
            assert fetch(place) == place
    if all(found is None for found in ranges.values()):
        return
    covered = [byte for start, length in ledger.announced for byte in (start, start + length)]
    assert covered == sorted(covered)
    assert all(length <= readahead.PIECE_BYTES for _, length in ledger.announced)
    assert sum(length for _, length in ledger.announced) == sum(found.length for found in ranges.values() if found)


def test_what_is_in_memory_is_not_announced() -> None:
    """A warm read costs a few looks and nothing else; so does one of few chunks."""
    warm, cold = Ledger(has_it=True), Ledger()
    places = [(number,) for number in range(2 * FEW)]
    announce_all(places, lambda place: FileRange(warm, place[0], 1))
    announce_all(places[: FEW - 1], lambda place: FileRange(cold, place[0], 1))
    assert warm.announced == cold.announced == []


def test_a_chunk_that_cannot_be_found_does_not_end_the_read() -> None:
    """Whoever fetches it says what is wrong; the announcements go on."""
    ledger = Ledger()

    def where(place: tuple[int, ...]) -> FileRange:
        if place[0] == 0:
            raise DataError("a damaged index")
        return FileRange(ledger, place[0], 1)

    announce_all([(number,) for number in range(FEW)], where)
    assert ledger.announced == [(number, 1) for number in range(1, FEW)]


def _stored(tmp_path: Path, kind: str) -> tuple[Location, npt.NDArray[np.int16]]:
    values = np.random.default_rng(0).integers(0, 50, (64, 64, 64)).astype(np.int16)
    path = tmp_path / "x"
    if kind.startswith("hdf5"):
        chunks, options = {
            "hdf5 gzip": ((16, 16, 16), {"compression": "gzip"}),
            "hdf5 raw": ((16, 16, 16), {}),
            "hdf5 contiguous": (None, {}),
        }[kind]
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=values, chunks=chunks, **options)
        return Location(str(path), "x"), values
    shards = (32, 32, 32) if "sharded" in kind else None
    compressors = "auto" if "zstd" in kind else None
    zarr.create_array(path, data=values, chunks=(16, 16, 16), shards=shards, compressors=compressors)  # type: ignore[arg-type]
    return Location(str(path)), values


class _Prompt:
    """The threads that announce, waited for."""

    def submit(self, work: Callable[..., None], *words: object) -> Future[None]:
        """Return what is done already."""
        future = fetchers().submit(work, *words)
        wait([future])
        return future


KINDS = ("hdf5 gzip", "hdf5 raw", "hdf5 contiguous", "zarr raw", "zarr zstd", "zarr sharded zstd", "zarr sharded raw")

COLD = """
import os, sys, numpy
from voxload.geometry import Box
from voxload.readers import Location, open_reader
path, dataset = sys.argv[1], sys.argv[2] or None
reader = open_reader(Location(path, dataset))
names = [os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files] or [path]
out = numpy.empty((1, 64, 64, 64), "<i2")
for turn in range(8):
    if turn % 2 == 0:
        for name in names:
            descriptor = os.open(name, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    reader.read_into(Box.whole((64, 64, 64)), out)
    print("MARK", flush=True)
"""


CORE = ("hdf5 gzip", "zarr raw", "zarr zstd", "zarr sharded zstd")


@pytest.mark.long
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("kind", CORE)
def test_the_core_announces_cold_chunks_alone(tmp_path: Path, kind: str) -> None:
    """Each chunk of files whose pages the system dropped is announced once; of files in memory, none is.

    A device may answer before the look at a page has returned: then there is nothing to wait for, nor to announce.
    """
    if file_system(tmp_path) in ("tmpfs", "ramfs"):
        pytest.skip("its files are always in memory")
    location, _ = _stored(tmp_path, kind)
    command = ["strace", "-f", "--seccomp-bpf", "-e", "trace=fadvise64,preadv2,write", "-o", str(tmp_path / "trace")]
    processes.run(
        [*command, sys.executable, "-c", COLD, location.path, location.dataset or ""], capture_output=True, check=True
    )
    *turns, _ = (tmp_path / "trace").read_text().split("MARK")
    would_wait = ["EAGAIN" in turn for turn in turns]
    assert [turn.count("POSIX_FADV_WILLNEED") for turn in turns] == [waits * 4**3 for waits in would_wait]
    assert len(turns) == 8
    assert not all(would_wait)
    if not any(would_wait):
        pytest.skip("this device answers at once")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in CORE])
def test_cold_files_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A file whose pages the system dropped is announced, and comes back bit for bit."""
    location, values = _stored(tmp_path, kind)
    announced = threading.Event()
    advise = os.posix_fadvise

    def noted(descriptor: int, offset: int, length: int, advice: int) -> None:
        announced.set()
        advise(descriptor, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", noted)
    monkeypatch.setattr("voxload.readers.storage.file.is_cold_page", lambda _: True)
    monkeypatch.setattr("voxload.readers.storage.file.is_cold_byte", lambda *_: True)
    monkeypatch.setattr("voxload.readers.zarr.chunkfiles.is_cold_byte", lambda *_: True)
    announce = FileBytes.announce

    def announced_map(self: FileBytes, offset: int, length: int) -> None:
        announced.set()
        announce(self, offset, length)

    monkeypatch.setattr(FileBytes, "announce", announced_map)
    # Threads that announce are called off when the read is over, and this one may be over before they have begun.
    monkeypatch.setattr("voxload.readers.zarr.chunkfiles.fetchers", _Prompt)
    reader = open_reader(location)
    out = np.zeros((1, 64, 64, 64), np.int16)
    reader.read_into(Box.whole((64, 64, 64)), out)
    reader.close()
    assert np.array_equal(out[0], values)
    assert announced.is_set()


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_other_nodes_are_fetched_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Where a file system is not the node's own, no file is mapped, and many requests are under way at once."""
    location, values = _stored(tmp_path, kind)
    monkeypatch.setattr("voxload.readers.storage.file.is_on_near_device", lambda *_: False)
    for module in ("zarr.native", "zarr.openshards", "zarr.chunkfiles"):
        monkeypatch.setattr(f"voxload.readers.{module}.is_node_local", lambda _: False)
    reader = open_reader(location)
    for box in (Box.whole((64, 64, 64)), Box((3, 5, 7), (40, 33, 64))):
        out = np.zeros((1, *box.shape), np.int16)
        reader.read_into(box, out)
        assert np.array_equal(out[0], values[box.slices])
    reader.close()
