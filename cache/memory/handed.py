"""HandedMemory: memory that a process of root's made, for one of another user's to write and for its clients to read.

1. It is root's, with rights for root alone: who was given it to read cannot open it anew to write, by whatever path.
2. Nobody makes it shorter (F_SEAL_SHRINK): who has mapped it never meets a SIGBUS.
3. It is as long as all that the service has, and mostly a hole: what may be used of it changes, and what may not be
   used any more is given back to the system at once, whoever has it mapped. Who reads there finds zeros, which agree
   with no checksum.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import weakref

from voxload.cache.memory.pages import SharedPages
from voxload.errors import StorageError

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""All that it has: F_SEAL_FUTURE_WRITE would forbid to give anything back."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
"""fallocate(2)."""
_PAGE = os.sysconf("SC_PAGESIZE")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class HandedMemory(SharedPages):
    """So many bytes, of which `usable` may be written to; one owner closes it.

    Parameters
    ----------
    name
        For people.
    size
        Bytes of it.
    head
        First bytes.
    writable, readable
        Descriptors of it; this has its own from then on.
    usable
        Bytes that may be used at first; they are allocated.

    Raises
    ------
    StorageError
        Where the system does not give so many.
    """

    def __init__(self, name: str, *, size: int, head: bytes, writable: int, readable: int, usable: int) -> None:
        self.path = f"memory {name}"
        self._writable, self.descriptor = os.dup(writable), os.dup(readable)
        self._finaliser = weakref.finalize(self, _close, self._writable, self.descriptor)
        self._allocated = 0
        self.allocate(max(len(head), usable))
        super().__init__(self._writable, size, head)
        self.usable = usable

    def allocate(self, stop: int) -> None:
        """Have all bytes before one allocated; raises StorageError, with nothing changed, where that cannot be."""
        if stop > self._allocated:
            try:
                os.posix_fallocate(self._writable, self._allocated, stop - self._allocated)
            except OSError as error:
                self._punch(self._allocated, stop)
                reason = os.strerror(error.errno or 0)
                raise StorageError(self.path, found=reason, expected=f"{stop} bytes of memory") from error
            self._allocated = stop

    def give_back(self, stop: int) -> None:
        """Give all bytes from one on back to the system, but for those on its page."""
        start = -(-stop // _PAGE) * _PAGE
        if start < self._allocated:
            self._punch(start, self._allocated)
            self._allocated, self._mapped = start, min(self._mapped, start)
        self.usable = stop

    def _punch(self, start: int, stop: int) -> None:
        punch(self._writable, start, stop)

    def close(self) -> None:
        """Give up the descriptors and the mapping; who was given it has it still."""
        self._finaliser()
        super().close()


def punch(descriptor: int, start: int, stop: int) -> None:
    """Give bytes of memory back to the system: they are a hole from then on. Raises OSError."""
    if stop > start and _libc.fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, start, stop - start):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def memory_to_hand(name: str, size: int) -> tuple[int, int]:
    """Return descriptors of new memory, to write and to read, with nothing of it allocated; for a process of root's.

    Raises StorageError where the system has no such memory.
    """
    try:
        writable = os.memfd_create(f"voxload-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(writable, 0o400)
            os.ftruncate(writable, size)
            fcntl.fcntl(writable, fcntl.F_ADD_SEALS, SEALS)
            return writable, os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
        except BaseException:
            os.close(writable)
            raise
    except OSError as error:
        raise StorageError(f"memory {name}", found=os.strerror(error.errno or 0), expected="memfd_create") from error


def is_handed(descriptor: int, seals: int) -> bool:
    """Tell whether memory is root's, and nobody else's to write or to cut short."""
    status = os.fstat(descriptor)
    return status.st_uid == 0 and not status.st_mode & 0o222 and seals & SEALS == SEALS


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
