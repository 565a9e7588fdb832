"""Coldness: which rung is taken, that each does what it says on real files, and that nothing is hidden."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from voxload.benchmark.cold import coldness
from voxload.benchmark.cold.coldness import METHODS, Facts, choose, drop_caches, make_cold, may_drop
from voxload.benchmark.cold.datafiles import DataFiles, data_files
from voxload.benchmark.cold.pagecache import file_system
from voxload.benchmark.measure.document import Cold
from voxload.benchmark.measure.kernel import KernelCounter
from voxload.benchmark.workload.workload import EPOCH, RUN, Coldness, Samples
from voxload.errors import StorageError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader, set_direct_reads

pytestmark = pytest.mark.usefixtures("page_cache")

SIZE = 2 << 20
"""Two files of this length may be locked by everyone (RLIMIT_MEMLOCK)."""
LIBC = ctypes.CDLL(None)
LIBC.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
NOTHING, ALL = Facts(may_drop=False, is_direct=False, hog=0), Facts(may_drop=True, is_direct=True, hog=1)
KNOB = Path("/proc/sys/vm/drop_caches")
TRIES = 4
"""Times that a share is taken which others may raise, and nobody can lower."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder whose files are on a device."""
    if file_system(tmp_path) in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder's files live in memory")
    return tmp_path


@pytest.fixture
def data(folder: Path) -> DataFiles:
    """Return files of random bytes on a device."""
    for name in "ab":
        (folder / name).write_bytes(os.urandom(SIZE))
    return DataFiles((str(folder / "a"), str(folder / "b")))


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Keep a file in memory: locked pages stay, whatever is dropped."""
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        address = np.frombuffer(view, np.uint8).ctypes.data
        assert LIBC.mlock(address, SIZE) == 0
        yield


def device_share(data: DataFiles) -> float:
    """Return bytes from the device over bytes asked, reading everything."""
    counter = KernelCounter()
    mark = counter.mark()
    for path in data.files:
        Path(path).read_bytes()
    kernel = counter.since(mark)
    assert kernel.asked == data.nbytes
    return kernel.device / kernel.asked


def cold_by(data: DataFiles, method: str, *, hog: int = 0) -> Cold:
    """Make a data set cold before a run."""
    return make_cold(data, Coldness(RUN, method, hog))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_rung_where_all_is_permitted(method: str) -> None:
    """One rung each; auto may climb."""
    expected = {"auto": ("fadvise", "drop_caches"), "none": ()}
    assert choose(method, ALL) == expected.get(method, (method,))


@pytest.mark.parametrize(
    ("method", "found"),
    [("drop_caches", "no permission"), ("direct", "through the page cache"), ("hog", "0 bytes"), ("ice", "'ice'")],
)
def test_what_cannot_be_is_refused(method: str, found: str) -> None:
    """A method that was named is never replaced by another one."""
    with pytest.raises(UsageError, match=found):
        choose(method, NOTHING)


def test_auto_does_without_rights() -> None:
    """One rung is left."""
    assert choose("auto", NOTHING) == ("fadvise",)


def check_reads(data: DataFiles, method: str) -> Cold:
    """Read a data set that was made cold, a few times: all of it comes from the device, and but for others, no more.

    Whoever empties the page cache meanwhile lets this process read its own libraries anew, which counts here, too. And
    the kernel passes over pages that it has in hand, as it has where a disk is busy: the coldest try counts.
    """
    shares, found = [], []
    for _ in range(TRIES):
        found.append(cold_by(data, method))
        shares.append(device_share(data))
    assert min(shares) == pytest.approx(1, rel=0.02)
    return min(found, key=lambda cold: cold.resident)


@pytest.mark.parametrize("method", ["auto", "fadvise"])
def test_cold_is_verified_and_true(data: DataFiles, method: str) -> None:
    """No page in memory, said so, and reads come from the device to 2 %."""
    cold = check_reads(data, method)
    assert (cold.method, cold.resident, cold.is_verified) == ("fadvise", 0.0, True)
    assert cold.text.startswith("cold, verified: 0.0 % of the data set in memory after fadvise")


@pytest.mark.long
@pytest.mark.skipif(not os.access(KNOB, os.W_OK), reason="the caches of this machine may not be dropped")
def test_dropping_all_caches_is_verified_and_true(data: DataFiles) -> None:
    """Dirty pages are written first, so that they go, too."""
    assert may_drop()
    cold = check_reads(data, "drop_caches")
    assert (cold.method, cold.resident, cold.is_verified) == ("drop_caches", 0.0, True)


def test_what_stays_is_said_loudly(data: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that someone has locked stay; the text says WARM, how much, and that more is not permitted."""
    monkeypatch.setattr(coldness, "_KNOB", Path("/proc/none"))
    monkeypatch.setenv("PATH", "")  # no sudo
    with locked(data.files[0]):
        cold = cold_by(data, "auto")
    assert (cold.method, cold.resident, cold.is_verified) == ("fadvise", 0.5, True)
    assert cold.text.startswith("WARM: 50.0 % of the data set in memory after fadvise; pages that")
    assert "drop_caches is not permitted" in cold.text


@pytest.mark.skipif(not os.access(KNOB, os.W_OK), reason="the caches of this machine may not be dropped")
def test_auto_climbs_where_pages_are_left(data: DataFiles) -> None:
    """And says which rung was the last, and that it did not help."""
    with locked(data.files[0]):
        cold = cold_by(data, "auto")
    assert (cold.method, cold.resident) == ("drop_caches", 0.5)
    assert cold.text.startswith("WARM: 50.0 % of the data set in memory after drop_caches")


@pytest.mark.parametrize("chunks", [None, (32, 32, 32)])
def test_a_reader_that_is_open_does_not_keep_pages(folder: Path, chunks: tuple[int, int, int] | None) -> None:
    """Readers map uncompressed volumes of local files; epochs begin cold all the same, and read right."""
    volume = np.arange(128**3, dtype=np.int32).astype(np.int16).reshape(128, 128, 128)
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=volume, chunks=chunks)
    samples = Samples(str(folder / "x.h5"), dataset="x", axes="DHW")
    out = np.zeros((1, *volume.shape), np.int16)
    reader = open_reader(Location(samples.location, "x", axes="DHW"))
    counter = KernelCounter()
    # Once uncounted: where a test before has dropped all caches, the libraries' own pages come from the device, too.
    reader.read_into(Box((0, 0, 0), volume.shape), out)
    found = []
    for _ in range(TRIES):
        out[:] = 0
        assert cold_by(data_files(samples), "fadvise").resident == 0.0
        mark = counter.mark()
        reader.read_into(Box((0, 0, 0), volume.shape), out)
        found.append(counter.since(mark).device)
        assert np.array_equal(out[0], volume)
    reader.close()
    assert min(found) == pytest.approx(volume.nbytes, rel=0.05)  # and the file's metadata


def test_a_refusal_is_an_error_or_said(data: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may refuse what looked permitted: an error where the method was named, part of the text for auto."""
    full = Path("/dev/full")  # open to all, and takes nothing
    monkeypatch.setattr(coldness, "_KNOB", full)
    with pytest.raises(StorageError, match=r"/dev/full: found No space left on device"):
        drop_caches()
    with pytest.raises(StorageError, match="No space left"):
        cold_by(data, "drop_caches")
    with locked(data.files[0]):
        cold = cold_by(data, "auto")
    assert (cold.method, cold.resident) == ("fadvise", 0.5)
    assert cold.text.startswith("WARM: 50.0 % of the data set in memory after fadvise; ")
    assert "No space left" in cold.text


def test_nothing_is_done_where_nothing_is_asked(data: DataFiles) -> None:
    """Neither without a time nor with the method none; what is in memory is said all the same."""
    with locked(data.files[0]), locked(data.files[1]):
        for asked in (Coldness(), Coldness(EPOCH, "none")):
            cold = make_cold(data, asked)
            assert (cold.method, cold.resident, cold.is_verified) == ("none", 1.0, True)
            assert cold.text.startswith("WARM: 100.0 % of the data set in memory")


def test_a_cache_beside_the_page_cache_is_not_called_cold(data: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file system with memory of its own, what the page cache has proves nothing."""
    monkeypatch.setattr(coldness, "file_system", lambda _: "zfs")
    cold = cold_by(data, "fadvise")
    assert (cold.resident, cold.is_verified) == (0.0, False)
    assert cold.text.startswith("UNVERIFIED: 0.0 % of the data set in memory after fadvise; zfs keeps a cache")


def test_what_the_system_does_not_say_is_unverified(data: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of other people's files: every rung is tried, and nothing is claimed."""
    monkeypatch.setattr(coldness, "resident_share", lambda _: math.nan)
    monkeypatch.setattr(coldness, "_KNOB", Path("/proc/none"))
    monkeypatch.setenv("PATH", "")
    cold = cold_by(data, "auto")
    assert math.isnan(cold.resident)
    assert not cold.is_verified
    assert cold.text.startswith("UNVERIFIED after fadvise: the system does not say")
    assert "drop_caches is not permitted" in cold.text


def test_direct_reads_need_a_loader_and_a_file_system(data: DataFiles) -> None:
    """Refused while this process reads through the page cache, and where files live in memory."""
    with pytest.raises(UsageError, match="set_direct_reads"):
        cold_by(data, "direct")
    set_direct_reads(is_direct=True)
    try:
        cold = cold_by(data, "direct")
        with pytest.raises(UsageError, match="without direct reads"):
            cold_by(DataFiles(("/proc/self/io",)), "direct")
        with locked(data.files[0]):
            text = cold_by(data, "direct").text
    finally:
        set_direct_reads(is_direct=False)
    assert (cold.method, cold.resident) == ("direct", 0.0)
    assert text.startswith("direct reads, past the page cache: 50.0 % of the data set in memory")


def test_held_memory_is_said(data: DataFiles) -> None:
    """The caller holds it; pages that are in memory nevertheless are counted."""
    with locked(data.files[0]), locked(data.files[1]):
        cold = cold_by(data, "hog", hog=1 << 20)
    assert (cold.method, cold.resident) == ("hog", 1.0)
    assert cold.text.startswith("WARM: 100.0 % of the data set in memory after hog; ")
    assert "1 MiB of memory held" in cold.text


def test_what_is_remote_is_said() -> None:
    """There is nothing to drop and nothing that was verified."""
    cold = cold_by(DataFiles((), remote=3), "auto")
    assert (cold.method, cold.is_verified) == ("none", False)
    assert math.isnan(cold.resident)
    assert cold.text.startswith("nothing to drop: 3 volumes are remote")


def test_files_in_memory_are_not_called_cold() -> None:
    """Files of a memory file system cannot be dropped."""
    path = Path("/dev/shm", f"voxload-test-{os.getpid()}")  # noqa: S108 - the one memory file system of every Linux
    path.write_bytes(os.urandom(SIZE))
    try:
        cold = cold_by(DataFiles((str(path),)), "fadvise")
    finally:
        path.unlink()
    assert cold.text.startswith("WARM: 100.0 %")
    assert "tmpfs keeps its files in memory" in cold.text
