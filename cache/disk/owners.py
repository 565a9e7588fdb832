"""Owners: which tiers of a folder are still open, told by the marks that their block files carry.

Each has a file of a random name, its mark, in ``.tenants`` and an flock on it, which the kernel releases with its
process. Block files carry the mark of the tier that owns them, so anyone can tell whether it lives.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from voxload.cache.disk.blockfile import OWNER_BYTES
from voxload.files.private import ForeignError, PrivateFolder

FOLDER = ".tenants"


class OwnerMark:
    """One tier's mark in a folder; made while the folder's ledger is locked. Every method may raise OSError.

    Nobody else's marks count: a file of another user, or what is no file, keeps nothing alive, and stays.
    """

    def __init__(self, folder: PrivateFolder) -> None:
        self.mark = os.urandom(OWNER_BYTES)
        self._dead: set[bytes] = set()
        self._folder = folder.folder(FOLDER, make=True)
        try:
            self._descriptor, _ = self._folder.file(self.mark.hex(), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except BaseException:
            self._folder.close()
            raise
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except BaseException:
            self.close()
            raise

    def is_alive(self, mark: bytes) -> bool:
        """Tell whether the tier of a mark is open; removes the mark of one that is not. None ever comes back."""
        if len(mark) != OWNER_BYTES or mark in self._dead:
            return False
        try:
            descriptor, _ = self._folder.file(mark.hex(), os.O_RDONLY)
        except (FileNotFoundError, ForeignError):
            self._dead.add(mark)
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        self._dead.add(mark)
        with suppress(FileNotFoundError):
            self._folder.unlink(mark.hex())
        return False

    def living(self) -> frozenset[bytes]:
        """Return the marks of all open tiers, while the ledger is locked; removes the others."""
        found = []
        for name in self._folder.names():
            with suppress(ValueError):
                mark = bytes.fromhex(name)
                if self.is_alive(mark):
                    found.append(mark)
        return frozenset(found)

    def close(self) -> None:
        """Remove the mark."""
        with suppress(OSError):
            self._folder.unlink(self.mark.hex())
        os.close(self._descriptor)
        self._folder.close()
