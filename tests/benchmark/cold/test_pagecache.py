"""Page cache: what is in memory of real files, seen in two ways, and that forgetting them sends reads to the device."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from voxload.benchmark.cold import pagecache
from voxload.benchmark.cold.pagecache import cache_note, evict, file_system, keeps_apart, resident_share, warm
from voxload.benchmark.measure.kernel import KernelCounter
from voxload.errors import NotFoundError, StorageError

pytestmark = pytest.mark.usefixtures("page_cache")

SIZE = 4 << 20
NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder whose files are on a device."""
    if file_system(tmp_path) in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder's files live in memory")
    return tmp_path


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep a file in memory, whoever drops the caches of this machine meanwhile: mapped pages stay."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert sum(view[:: mmap.PAGESIZE]) > 0
        yield


def test_what_is_forgotten_is_read_from_the_device(folder: Path) -> None:
    """Fresh files are in memory, forgotten ones are not, and reads of these come from the device."""
    files = [folder / name for name in "ab"]
    for path in files:
        path.write_bytes(os.urandom(SIZE))
    with held(files[0]), held(files[1]):
        assert resident_share(files) == 1.0
    evict(files)
    assert resident_share(files) == 0.0
    counter = KernelCounter()
    mark = counter.mark()
    for path in files:
        path.read_bytes()
    assert counter.since(mark).device == pytest.approx(2 * SIZE, rel=0.02)


def test_what_is_warmed_is_read_once(folder: Path) -> None:
    """All bytes of all files come from the device, and reading them again costs it nothing."""
    files = [folder / name for name in "ab"]
    for path in files:
        path.write_bytes(os.urandom(SIZE))
    evict(files)
    counter = KernelCounter()
    mark = counter.mark()
    warm(files)
    assert counter.since(mark).device == pytest.approx(2 * SIZE, rel=0.02)
    with held(files[0]), held(files[1]):
        assert resident_share(files) == 1.0
        mark = counter.mark()
        warm(files)
        assert counter.since(mark).device == 0
    with pytest.raises(NotFoundError, match="no such file"):
        warm([folder / "none"])


def test_the_share_is_that_of_all_pages(folder: Path) -> None:
    """Of files of different lengths; an empty one has no page, and no page at all is unknown."""
    (folder / "large").write_bytes(os.urandom(3 * SIZE))
    (folder / "small").write_bytes(os.urandom(SIZE - 5))
    (folder / "empty").touch()
    evict([folder / "large"])
    with held(folder / "small"):
        assert resident_share([folder / "large", folder / "small", folder / "empty"]) == 0.25
    assert math.isnan(resident_share([folder / "empty"]))
    assert math.isnan(resident_share([]))


def test_files_larger_than_a_window_are_looked_at_in_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same share, whatever the window."""
    (folder / "x").write_bytes(os.urandom(SIZE + 1))
    monkeypatch.setattr(pagecache, "_WINDOW", SIZE // 4)
    with held(folder / "x"):
        assert resident_share([folder / "x"]) == 1.0
    evict([folder / "x"])
    assert resident_share([folder / "x"]) == 0.0


def test_pages_that_someone_maps_are_seen_to_stay(folder: Path) -> None:
    """Forgetting is a request; what did not follow it counts."""
    (folder / "x").write_bytes(os.urandom(SIZE))
    with held(folder / "x"):
        evict([folder / "x"])
        assert resident_share([folder / "x"]) == 1.0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_of_other_peoples_files_nothing_wrong_is_said() -> None:
    """The kernel claims all pages of them in memory (mincore); without cachestat, the share is unknown."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x"
        path.write_bytes(os.urandom(SIZE))
        evict([path])
        Path(name).chmod(0o755)
        path.chmod(0o644)
        os.seteuid(NOBODY)
        try:
            cold = resident_share([path])
        finally:
            os.seteuid(0)
    assert math.isnan(cold) or cold == 0.0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    """With the system's reason."""
    (tmp_path / "x").touch(mode=0)
    with pytest.raises(StorageError, match="Permission denied"):
        resident_share([tmp_path / "x"])


def test_missing_files_are_named(tmp_path: Path) -> None:
    """By both functions."""
    for look in (resident_share, evict):
        with pytest.raises(NotFoundError, match="gone: found no such file"):
            look([tmp_path / "gone"])


def test_file_systems_are_known_by_their_mounts(tmp_path: Path) -> None:
    """As the system lists them; what lies in /proc and /dev/shm is something else than what lies on a disk."""
    assert file_system("/proc/self/io") == "proc"
    assert file_system("/dev/shm") == "tmpfs"  # noqa: S108 - only asked what it is
    assert file_system(tmp_path) not in ("", "proc")
    (tmp_path / "link").symlink_to("/proc/self")
    assert file_system(tmp_path / "link") == "proc"


@pytest.mark.parametrize(
    ("kind", "word", "is_apart"),
    [
        ("ext4", "", False),
        ("zfs", "a cache of its own", True),
        ("gpfs", "a cache of its own", True),
        ("tmpfs", "files in memory", False),
        ("lustre", "behind lustre", False),
        ("", "this file system", False),
    ],
)
def test_caches_out_of_sight_are_said(kind: str, word: str, *, is_apart: bool) -> None:
    """Nothing about what only the page cache keeps."""
    assert word in cache_note(kind)
    assert bool(word) == bool(cache_note(kind))
    assert keeps_apart(kind) is is_apart
