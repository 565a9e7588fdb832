"""Ledger: how many bytes a folder holds, told by a small file that all tiers in the folder share.

1. Every file of the folder appears, changes its size or goes while the ledger is locked, and at its full size: so the
   sum of the sizes of its files is the number in the ledger, and at no moment more than that.
2. The lock is an flock: the kernel releases it with its process. Whoever is killed between the number and the file
   leaves a number that is too large, never one too small; the next tier counts anew.
3. Nobody waits for the lock for ever: a stopped process that holds it costs the others `TIMEOUT` and an answer of no.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from voxload.files.private import ForeignError, PrivateFolder

NAME = ".voxload-tier"
LEDGER_BYTES = 8
"""Of the folder's capacity, the ledger itself takes so much."""
TIMEOUT = 30.0
"""Seconds; counting the files of a large folder on a cold disk takes some of them."""
_LONGEST_NAP = 0.01


class Ledger:
    """The number of bytes in a folder; safe to use from many threads and processes at once.

    Parameters
    ----------
    folder
        This user's alone; may be closed before this is.

    Raises
    ------
    OSError
        Where the file cannot be made or the file system has no locks.
    ForeignError
        Where another user made it, or it is something else.
    """

    def __init__(self, folder: PrivateFolder) -> None:
        self._path = folder.path / NAME
        self._descriptor, status = folder.file(NAME, os.O_RDWR | os.O_CREAT)
        if status.st_size not in (0, LEDGER_BYTES):
            os.close(self._descriptor)
            raise ForeignError(
                str(self._path), found=f"{status.st_size} bytes", expected=f"{LEDGER_BYTES}", remedy="remove it"
            )
        self._turn = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[Ledger]:
        """Hold the only right to change the folder; `used` may be set meanwhile.

        Raises OSError: ESTALE where the folder is not the one that it was, ETIMEDOUT where nobody gives the lock back.
        """
        deadline = time.monotonic() + TIMEOUT
        if not self._turn.acquire(timeout=TIMEOUT):
            raise _late()
        try:
            self._lock(deadline)
            try:
                self._check()
                yield self
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            self._turn.release()

    @property
    def used(self) -> int:
        """Bytes of all files in the folder; without the lock, at some moment of late."""
        return int.from_bytes(os.pread(self._descriptor, LEDGER_BYTES, 0), "little")

    @used.setter
    def used(self, nbytes: int) -> None:
        os.pwrite(self._descriptor, max(nbytes, LEDGER_BYTES).to_bytes(LEDGER_BYTES, "little"), 0)

    def is_there(self) -> bool:
        """Tell whether the folder is still the one that it was."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except OSError:
            return False

    def close(self) -> None:
        """Release the file."""
        os.close(self._descriptor)

    def _lock(self, deadline: float) -> None:
        nap = 0.0005
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _late() from None
                time.sleep(nap)
                nap = min(2 * nap, _LONGEST_NAP)
            else:
                return

    def _check(self) -> None:
        if not self.is_there():
            raise OSError(errno.ESTALE, "the folder is not the one that it was")


def _late() -> OSError:
    return OSError(errno.ETIMEDOUT, "another process keeps the folder locked")
