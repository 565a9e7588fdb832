"""Tenants: which tiers of a folder are still open.

Each has a file of a random name, its mark, in ``.tenants`` and an flock on it, which the kernel releases with its
process. Block files carry the mark of the tier that owns them, so anyone can tell whether it lives.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from voxload.cache.blockfile import OWNER_BYTES

FOLDER = ".tenants"


class Tenant:
    """One tier's mark in a folder; made while the folder's ledger is locked. Every method may raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self.mark = os.urandom(OWNER_BYTES)
        self._dead: set[bytes] = set()
        self._path = self._folder / self.mark.hex()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except BaseException:
            self.close()
            raise

    def is_alive(self, mark: bytes) -> bool:
        """Tell whether the tier of a mark is open; removes the mark of one that is not. None ever comes back."""
        if len(mark) != OWNER_BYTES or mark in self._dead:
            return False
        path = self._folder / mark.hex()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            self._dead.add(mark)
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        self._dead.add(mark)
        path.unlink(missing_ok=True)
        return False

    def living(self) -> frozenset[bytes]:
        """Return the marks of all open tiers, while the ledger is locked; removes the others."""
        found = []
        for path in self._folder.iterdir():
            with suppress(ValueError):
                mark = bytes.fromhex(path.name)
                if self.is_alive(mark):
                    found.append(mark)
        return frozenset(found)

    def close(self) -> None:
        """Remove the mark."""
        with suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
