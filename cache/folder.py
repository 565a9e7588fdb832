"""TierFolder: a folder of block files that many tiers, of one job or of several, use at once.

``<identity of the data>/<two digits>/<digest>.block`` are the blocks; blockfile.py says what is in them. ``.partial``
has files that are being written, ``.voxload-tier`` the number of bytes of all files (ledger.py), and ``.tenants`` a
mark of each open tier (tenants.py).

1. The files of all tiers together never exceed the capacity of any tier that stores.
2. A block has one owner: the tier that stored it, or that adopted it when it was ownerless. It is ownerless when that
   tier has ended. All read it; only its owner removes it, or anyone where it is ownerless.
3. Where there is no room, ownerless blocks make some, the longest unchanged first: what a job stored that is over, and
   nobody who runs has adopted.
4. Damaged files are removed by whoever meets them.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from voxload.cache.blockfile import SUFFIX, owner_of, set_owner
from voxload.cache.ledger import LEDGER_BYTES, Ledger
from voxload.cache.tenants import Tenant
from voxload.errors import UsageError

_PARTIAL = ".partial"
_THREADS = 8
"""They wait for a disk's metadata, not for a core."""


class TierFolder:
    """One tier's view of its folder; safe to use from many threads at once. Every method may raise OSError.

    Parameters
    ----------
    path
        Made, for this user alone, where it is not there.
    capacity
        Bytes of all files in it.

    Raises
    ------
    UsageError
        Where the capacity is more than the disk has left, or others may write into the folder.
    """

    def __init__(self, path: Path, capacity: int) -> None:
        self.path, self.capacity = path, capacity
        self._partial = path / _PARTIAL
        self._numbers = itertools.count()
        self._candidates: list[Path] = []
        self._neighbours: frozenset[bytes] | None = None
        self._is_overcounted = False
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o022:
            raise UsageError(
                f"disk tier {path}",
                found=f"mode {mode:o}",
                expected="a folder that nobody else may write into",
                remedy=f"chmod go-w {path}",
            )
        self.ledger = Ledger(path)
        try:
            self._partial.mkdir(mode=0o700, exist_ok=True)
            with self.ledger.locked():
                self._enter()
        except BaseException:
            self.ledger.close()
            raise

    def _enter(self) -> None:
        """Count what is there, without what killed writers left, and refuse a capacity that the disk does not have."""
        self._tenant = Tenant(self.path)
        try:
            self._tenant.living()
            self._count()
            self._check_capacity()
            self._make_room(0)
        except BaseException:
            self._tenant.close()
            raise

    def _check_capacity(self) -> None:
        system = os.statvfs(self.path)
        allowed = system.f_bavail * system.f_frsize + self.ledger.used
        if self.capacity > allowed:
            raise UsageError(
                f"disk tier {self.path}",
                found=f"{self.capacity} bytes projected",
                expected=f"at most {allowed} bytes allowed, those in the folder included",
                remedy="lower the tier's capacity, free space, or name a folder on another disk",
            )

    @property
    def mark(self) -> bytes:
        """What block files of this tier carry."""
        return self._tenant.mark

    def reserve(self, nbytes: int) -> Path | None:
        """Return a new file of full size to be written, already counted; None where there is no room."""
        path = self._partial / f"{self.mark.hex()}-{next(self._numbers)}"
        with self.ledger.locked() as ledger:
            if not self._make_room(nbytes):
                return None
            ledger.used += nbytes
            try:
                _make(path, nbytes)
            except BaseException:
                path.unlink(missing_ok=True)
                ledger.used -= nbytes
                raise
        return path

    def publish(self, temporary: Path, path: Path) -> None:
        """Give a written file its name, or remove it where another one has that already."""
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        with self.ledger.locked():
            if path.exists():
                self._remove(temporary)
            else:
                temporary.rename(path)

    def discard(self, temporary: Path) -> None:
        """Remove a file that could not be written."""
        with self.ledger.locked():
            self._remove(temporary)

    def drop(self, path: Path) -> None:
        """Remove a block that this tier owns or nobody does."""
        with self.ledger.locked(), suppress(FileNotFoundError, NotADirectoryError):
            owner = owner_of(path)
            if owner == self.mark or not self._tenant.is_alive(owner):
                self._remove(path)

    def remove_damaged(self, path: Path, inode: int) -> None:
        """Remove a file, unless another one has its name by now."""
        with self.ledger.locked(), suppress(FileNotFoundError):
            if path.lstat().st_ino == inode:
                path.unlink()
                # How many bytes were counted for it, its size need not tell any more.
                self._is_overcounted = True

    def adopt(self, path: Path) -> bool:
        """Own a block that nobody owns; tell whether it is there."""
        try:
            owner = owner_of(path)
            if owner != self.mark and not self._tenant.is_alive(owner):
                set_owner(path, self.mark)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def close(self) -> None:
        """Leave the folder; what this tier owned is ownerless."""
        self._tenant.close()
        self.ledger.close()

    def _remove(self, path: Path) -> None:
        """Remove a file; called with the ledger locked."""
        nbytes = path.lstat().st_size
        path.unlink()
        self.ledger.used -= nbytes

    def _make_room(self, nbytes: int) -> bool:
        """Remove ownerless blocks until `nbytes` fit, or none are left; called with the ledger locked."""
        if self._fits(nbytes):
            return True
        if nbytes > self.capacity - LEDGER_BYTES:
            return False
        if self._is_overcounted:
            self._count()
        self._look_for_candidates()
        while self._candidates and not self._fits(nbytes):
            path = self._candidates.pop()
            with suppress(FileNotFoundError):
                owner = owner_of(path)
                if owner != self.mark and not self._tenant.is_alive(owner):
                    self._remove(path)
        return self._fits(nbytes)

    def _fits(self, nbytes: int) -> bool:
        return self.ledger.used + nbytes <= self.capacity

    def _look_for_candidates(self) -> None:
        """List all blocks at the first lack of room, and again when a tier has ended since."""
        living = self._tenant.living()
        if self._neighbours is None or not self._neighbours <= living:
            self._candidates = [path for _, _, path in sorted(self._blocks(), reverse=True)]
        self._neighbours = living

    def _count(self) -> None:
        """Count anew; called with the ledger locked, so that nothing changes meanwhile."""
        partial = 0
        for path in self._partial.iterdir():
            if self._tenant.is_alive(_mark_in(path.name)):
                partial += path.lstat().st_size
            else:
                path.unlink()
        self.ledger.used = LEDGER_BYTES + partial + sum(nbytes for _, nbytes, _ in self._blocks())
        self._is_overcounted = False

    def _blocks(self) -> Iterator[tuple[float, int, Path]]:
        """Yield time of change, size and path of every block file, in no order."""
        folders = [path for path in self.path.glob("[0-9a-f]*/[0-9a-f][0-9a-f]") if path.is_dir()]
        with ThreadPoolExecutor(_THREADS) as pool:
            for found in pool.map(block_files, folders):
                yield from found


def block_files(folder: Path) -> list[tuple[float, int, Path]]:
    """Return time of change, size and path of the block files right in a folder; none where there is no folder."""
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, status.st_size, Path(entry.path)))
    return found


def _make(path: Path, nbytes: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, nbytes)
    finally:
        os.close(descriptor)


def _mark_in(name: str) -> bytes:
    try:
        return bytes.fromhex(name.partition("-")[0])
    except ValueError:
        return b""
