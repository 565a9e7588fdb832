"""DiskTier: blocks in files of a folder, which outlive the job and are found again by the next one.

What several tiers in one folder owe each other stands in folder.py. In short: the capacity is one of the folder; blocks
are everyone's to read, but only the tier that stored or found one drops it; and what an ended job left makes room where
nobody who runs has asked for it by `DiskTier.inventory`.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from voxload.cache.codec import Codec
from voxload.cache.disk.blockfile import HEADER_BYTES, Found, header_of, name_of, read_block, write_whole
from voxload.cache.disk.folder import TierFolder
from voxload.cache.disk.ledger import LEDGER_BYTES
from voxload.cache.form import checksum, store_form
from voxload.cache.protocol import Answer, BlockKey
from voxload.cache.warnonce import WarnOnce
from voxload.errors import StorageError, UsageError
from voxload.files.private import ForeignError
from voxload.readers.protocol import Volume

_THREADS = 8
"""They wait for a disk's metadata, not for a core."""
_REMEDIES = {
    errno.ENOSPC: "free space on the disk, or lower the capacity of the disk tier",
    errno.EDQUOT: "free some of the quota, or lower the capacity of the disk tier",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EIO: "have the disk checked",
    errno.EROFS: "mount the disk for writing",
    errno.ESTALE: "leave the folder alone while jobs use it",
    errno.ETIMEDOUT: "end the stopped process that holds the folder's lock (see lslocks)",
}


class DiskTier:
    """A tier of files, safe to use from many threads at once.

    Parameters
    ----------
    folder
        On a disk of this node. Made, for this user alone, where it is not there. In one that all users may write into,
        each with files of their own (mode 1777), it is ``voxload-UID``, for each user another one.
    capacity
        Bytes of all files in the folder, headers and what other tiers store there included.
    codec
        What is done to blocks: ``none`` or ``bitshuffle-lz4``. Any tier reads what another one stored.

    Raises
    ------
    UsageError
        Where the capacity is more than the disk has left, the folder is another user's, or others may write into it.
    StorageError
        Where the folder cannot be made or written, or has no file locks.
    """

    def __init__(self, folder: str | os.PathLike[str], capacity: int, *, codec: str | Codec = Codec.NONE) -> None:
        path = Path(folder)
        self._codec = Codec.parse(codec)
        self._warnings = WarnOnce(f"disk tier {path}")
        if capacity <= LEDGER_BYTES:
            raise UsageError("capacity of the disk tier", found=str(capacity), expected=f"more than {LEDGER_BYTES}")
        try:
            self._folder = TierFolder(path, capacity)
        except OSError as error:
            raise StorageError(
                f"disk tier {path}",
                found=os.strerror(error.errno or 0),
                expected="a folder on a local disk that can be written and locked",
                remedy="name another folder, or use no disk tier",
            ) from error

    @property
    def path(self) -> str:
        """The folder, for `voxload.cache.disk.blockfile.BlockFiles`."""
        return str(self._folder.path)

    @property
    def capacity(self) -> int:
        """Most bytes that all files in the folder take together."""
        return self._folder.capacity

    @property
    def room(self) -> int:
        """Bytes of the capacity that blocks can have, in pieces of their `footprint`."""
        return self.capacity - LEDGER_BYTES

    @property
    def used(self) -> int:
        """Bytes that all files in the folder take now, other tiers' included."""
        return self._folder.ledger.used

    @staticmethod
    def footprint(nbytes: int) -> int:
        """Return the most that a block of `nbytes` takes of the room."""
        return HEADER_BYTES + nbytes

    def put(self, key: BlockKey, block: Volume) -> bool:
        """Store a block; False where there is no room, the system refuses, or another user's file has its name."""
        name = name_of(key)
        try:
            return self._folder.has(name, key.digest) or self._write(name, key.digest, block)
        except OSError as error:
            self._tell(error)
            return False

    def _write(self, name: str, digest: bytes, block: Volume) -> bool:
        form, data = store_form(block, self._codec)
        form = dataclasses.replace(form, crc=checksum(data, form.seed(digest)))
        header = header_of(digest, block, form, self._folder.mark)
        reserved = self._folder.reserve(self.footprint(form.stored))
        if reserved is None:
            return False
        descriptor, temporary = reserved
        try:
            try:
                write_whole(descriptor, (header, data))
            finally:
                os.close(descriptor)
            self._folder.publish(temporary, name, digest)
        except BaseException:
            with suppress(OSError):
                self._folder.discard(temporary)
            raise
        return True

    def get_into(self, key: BlockKey, out: Volume) -> bool:
        """Fill `out` with a block of its type and shape; a damaged one is removed."""
        name = name_of(key)
        try:
            found = self._read(name, key.digest, out)
            if found.answer is Answer.WRONG:
                self._folder.remove_damaged(name, found.inode)
        except OSError as error:
            self._tell(error)
            return False
        if found.answer is Answer.WRONG:
            what = f"{name.rpartition('/')[2]} is damaged"
            self._warnings.tell("damage", what, remedy="have the disk checked if it happens again")
        elif not found.inode and not self._folder.ledger.is_there():
            self._tell(OSError(errno.ESTALE, ""))
        return found.answer is Answer.GOT

    def _read(self, name: str, digest: bytes, out: Volume) -> Found:
        try:
            self._folder.check(name)
        except FileNotFoundError:
            return Found(Answer.ABSENT)
        return read_block(self._folder.files, name, digest, out)

    def drop(self, key: BlockKey) -> None:
        """Forget a block that this tier owns or nobody does; another tier's stays, and `holds` tells so."""
        try:
            self._folder.drop(name_of(key))
        except OSError as error:
            self._tell(error)

    def holds(self, key: BlockKey) -> bool:
        """Tell whether a block is there."""
        try:
            return self._folder.holds(name_of(key))
        except OSError as error:
            self._tell(error)
            return False

    def inventory(self, keys: Sequence[BlockKey]) -> list[bool]:
        """Tell which blocks are there, and own those that are ownerless; costs a few system calls for each that is.

        Whoever means to use blocks of earlier jobs calls this before the first `put`, which may remove what nobody
        has asked for.
        """
        names = [name_of(key) for key in keys]
        try:
            parents = {name.rpartition("/")[0] for name in names}
            there = {name for parent in parents for name in self._listed(parent)}
            with ThreadPoolExecutor(_THREADS) as pool:
                return list(pool.map(lambda name: name in there and self._adopt(name), names))
        except OSError as error:
            self._tell(error)
            return [False] * len(names)

    def _listed(self, parent: str) -> set[str]:
        try:
            return self._folder.listed(parent)
        except ForeignError as error:
            self._tell(error)
            return set()

    def _adopt(self, name: str) -> bool:
        try:
            return self._folder.adopt(name)
        except ForeignError as error:
            self._tell(error)
            return False

    def close(self) -> None:
        """Leave the folder; its blocks stay, ownerless."""
        self._folder.close()

    def _tell(self, error: OSError) -> None:
        """Warn once of each kind of refusal; where the folder is gone, that is the kind, whatever the call found."""
        if isinstance(error, ForeignError):
            self._warnings.tell(error.kind, f"{error}", remedy="see who may write there, and what of")
            return
        kind = error.errno if self._folder.ledger.is_there() else errno.ESTALE
        what = "the folder is gone" if kind == errno.ESTALE else os.strerror(kind or 0)
        self._warnings.tell(kind, what, remedy=_REMEDIES.get(kind or 0, "check folder and disk, or use no disk tier"))
