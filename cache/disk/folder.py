"""TierFolder: a folder of block files that many tiers, of one job or of several, use at once.

``<identity of the data>/<two digits>/<digest>.block`` are the blocks; blockfile.py says what is in them. ``.partial``
has files that are being written, ``.voxload-tier`` the number of bytes of all files (ledger.py), and ``.tenants`` a
mark of each open tier (owners.py).

1. The files of all tiers together never exceed the capacity of any tier that stores.
2. A block has one owner: the tier that stored it, or that adopted it when it was ownerless. It is ownerless when that
   tier has ended. All read it; only its owner removes it, or anyone where it is ownerless.
3. Where there is no room, ownerless blocks make some, the longest unchanged first: what a job stored that is over, and
   nobody who runs has adopted.
4. Damaged files are removed by whoever meets them.
5. The folder, its folders and its files are this user's alone (`voxload.files.private`). What is not is no block: it is
   neither read nor removed, and nothing is stored in its place. All is reached from the descriptor of the folder that
   was looked at when the tier was made.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from voxload.cache.disk.blockfile import SUFFIX, is_block, opened_under, owner_of, set_owner
from voxload.cache.disk.ledger import LEDGER_BYTES, Ledger
from voxload.cache.disk.owners import OwnerMark
from voxload.errors import UsageError
from voxload.files.private import OTHERS_WRITE, ForeignError, PrivateFolder, is_others_link, make_folders

_PARTIAL = ".partial"
_THREADS = 8
"""They wait for a disk's metadata, not for a core."""
_HEX = frozenset("0123456789abcdef")


class TierFolder:
    """One tier's view of its folder; safe to use from many threads at once. Every method may raise OSError.

    Parameters
    ----------
    path
        Made, for this user alone, where it is not there. In one that all users may write into, each with files of their
        own (the sticky bit), it is ``voxload-UID``.
    capacity
        Bytes of all files in it.

    Raises
    ------
    UsageError
        Where the capacity is more than the disk has left, the folder or what a tier has in it is another user's, or
        others may write there.
    """

    def __init__(self, path: Path, capacity: int) -> None:
        self.capacity = capacity
        self._numbers = itertools.count()
        self._candidates: list[str] = []
        self._neighbours: frozenset[bytes] | None = None
        self._is_overcounted = False
        self._checked: set[str] = set()
        with ExitStack() as opened:
            try:
                self.files = opened.enter_context(_private(path))
                self.ledger = Ledger(self.files)
                opened.callback(self.ledger.close)
                self._partial = opened.enter_context(self.files.folder(_PARTIAL, make=True))
                with self.ledger.locked():
                    self._enter()
            except ForeignError as error:
                raise UsageError(f"disk tier {error}") from error
            self._opened = opened.pop_all()

    @property
    def path(self) -> Path:
        """The folder."""
        return self.files.path

    def _enter(self) -> None:
        """Count what is there, without what killed writers left, and refuse a capacity that the disk does not have."""
        self._owner = OwnerMark(self.files)
        try:
            self._owner.living()
            self._count()
            self._check_capacity()
            self._make_room(0)
        except BaseException:
            self._owner.close()
            raise

    def _check_capacity(self) -> None:
        system = os.fstatvfs(self.files.descriptor)
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
        return self._owner.mark

    def check(self, name: str) -> None:
        """Look at the folders of a block's file, unless they were found good before: nobody else can change them then.

        Raises FileNotFoundError where they are not there, ForeignError where they are not this user's alone.
        """
        parent = name.rpartition("/")[0]
        if parent not in self._checked:
            opened_under(self.files, name).close()
            self._checked.add(parent)

    def holds(self, name: str) -> bool:
        """Tell whether a file of this user's has a block's name."""
        try:
            self.check(name)
        except (FileNotFoundError, ForeignError):
            return False
        return self.files.status(name) is not None

    def has(self, name: str, digest: bytes) -> bool:
        """Tell whether a block is there, by its header and its length."""
        try:
            self.check(name)
        except FileNotFoundError:
            return False
        return is_block(self.files, name, digest)

    def reserve(self, nbytes: int) -> tuple[int, str] | None:
        """Return descriptor and name of a new file of full size, already counted; None where there is no room."""
        name = f"{self.mark.hex()}-{next(self._numbers)}"
        with self.ledger.locked() as ledger:
            if not self._make_room(nbytes):
                return None
            descriptor, _ = self._partial.file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            ledger.used += nbytes
            try:
                os.ftruncate(descriptor, nbytes)
            except BaseException:
                os.close(descriptor)
                self._partial.unlink(name)
                ledger.used -= nbytes
                raise
        return descriptor, name

    def publish(self, temporary: str, name: str, digest: bytes) -> None:
        """Give a written file its name, or remove it where that block is there already.

        What is damaged under that name makes way; what is not this user's does not.
        """
        parent = name.rpartition("/")[0]
        if parent not in self._checked or not self.files.has_folder(parent):
            opened_under(self.files, name, make=True).close()
        with self.ledger.locked():
            if self.has(name, digest):
                self._remove(self._partial, temporary)
            else:
                self._is_overcounted |= self.files.status(name) is not None
                self._partial.rename(temporary, name, self.files)

    def discard(self, temporary: str) -> None:
        """Remove a file that could not be written."""
        with self.ledger.locked():
            self._remove(self._partial, temporary)

    def drop(self, name: str) -> None:
        """Remove a block that this tier owns or nobody does."""
        with self.ledger.locked(), suppress(FileNotFoundError):
            self.check(name)
            if self._is_ours(name):
                self._remove(self.files, name)

    def remove_damaged(self, name: str, inode: int) -> None:
        """Remove a file, unless another one has its name by now."""
        with self.ledger.locked():
            status = self.files.status(name)
            if status is not None and status.st_ino == inode:
                self.files.unlink(name)
                # How many bytes were counted for it, its size need not tell any more.
                self._is_overcounted = True

    def adopt(self, name: str) -> bool:
        """Own a block that nobody owns; tell whether it is there."""
        try:
            owner = owner_of(self.files, name)
            if owner != self.mark and not self._owner.is_alive(owner):
                set_owner(self.files, name, self.mark)
        except FileNotFoundError:
            return False
        return True

    def listed(self, parent: str) -> set[str]:
        """Return the names of all block files in one of the folders of blocks."""
        with suppress(FileNotFoundError):
            return {name for _, _, name in self._listed(parent)}
        return set()

    def close(self) -> None:
        """Leave the folder; what this tier owned is ownerless."""
        self._owner.close()
        self._opened.close()

    def _is_ours(self, name: str) -> bool:
        """Tell whether this tier owns a block, or nobody does."""
        owner = owner_of(self.files, name)
        return owner == self.mark or not self._owner.is_alive(owner)

    def _remove(self, folder: PrivateFolder, name: str) -> None:
        """Remove a file of ours; called with the ledger locked."""
        status = folder.status(name)
        if status is not None:
            folder.unlink(name)
            self.ledger.used -= status.st_size

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
            name = self._candidates.pop()
            with suppress(FileNotFoundError, ForeignError):
                owner = owner_of(self.files, name)
                if owner != self.mark and not self._owner.is_alive(owner):
                    self._remove(self.files, name)
        return self._fits(nbytes)

    def _fits(self, nbytes: int) -> bool:
        return self.ledger.used + nbytes <= self.capacity

    def _look_for_candidates(self) -> None:
        """List all blocks at the first lack of room, and again when a tier has ended since."""
        living = self._owner.living()
        if self._neighbours is None or not self._neighbours <= living:
            self._candidates = [name for _, _, name in sorted(self._blocks(), reverse=True)]
        self._neighbours = living

    def _count(self) -> None:
        """Count anew; called with the ledger locked, so that nothing changes meanwhile."""
        partial = 0
        for name in self._partial.names():
            status = self._partial.status(name)
            if status is None:
                continue
            if self._owner.is_alive(_mark_in(name)):
                partial += status.st_size
            else:
                self._partial.unlink(name)
        self.ledger.used = LEDGER_BYTES + partial + sum(nbytes for _, nbytes, _ in self._blocks())
        self._is_overcounted = False

    def _blocks(self) -> Iterator[tuple[float, int, str]]:
        """Yield time of change, size and name of every block file, in no order."""
        parents = []
        for data in self.files.names():
            if _HEX.issuperset(data):
                with suppress(FileNotFoundError, ForeignError), self.files.folder(data) as folder:
                    parents += [f"{data}/{digits}" for digits in folder.names()]
        with ThreadPoolExecutor(_THREADS) as pool:
            for found in pool.map(self._listed_if_ours, parents):
                yield from found

    def _listed_if_ours(self, parent: str) -> list[tuple[float, int, str]]:
        with suppress(FileNotFoundError, ForeignError):
            return self._listed(parent)
        return []

    def _listed(self, parent: str) -> list[tuple[float, int, str]]:
        """Return time of change, size and name of the block files in a folder of blocks."""
        found = []
        with opened_under(self.files, f"{parent}/") as folder, os.scandir(folder.descriptor) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX):
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            found.append((status.st_mtime, status.st_size, f"{parent}/{entry.name}"))
        return found


def _private(path: Path) -> PrivateFolder:
    """Open a tier's folder, and make it where it is not there."""
    make_folders(path)
    if not is_others_link(path):
        status = path.stat()
        if status.st_mode & stat.S_ISVTX and status.st_mode & OTHERS_WRITE and status.st_uid in (0, os.geteuid()):
            return PrivateFolder.make(path / f"voxload-{os.geteuid()}")
    return PrivateFolder.open(path)


def _mark_in(name: str) -> bytes:
    try:
        return bytes.fromhex(name.partition("-")[0])
    except ValueError:
        return b""
