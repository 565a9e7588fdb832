"""SealedMemory: memory without a name, which goes to other processes by its descriptor; memfd_create(2), Linux 5.1.

1. Nobody finds it: no path leads to it, no folder lists it. Who has it was given it, by a message with SCM_RIGHTS.
2. Nobody but its maker writes to it, whoever they are: after the maker's own mapping, F_SEAL_FUTURE_WRITE refuses any
   other, through any descriptor, as it refuses write(2).
3. Nobody makes it shorter, its maker included (F_SEAL_SHRINK): who has mapped it never meets a SIGBUS.
4. Its bytes are allocated when it is made, so that what does not fit is an error then.
5. It is there as long as a process has it: a killed owner's blocks stay readable where they were being read, and a
   node's cleaning of ``/dev/shm`` (a site's epilog, systemd's RemoveIPC) does not see it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from typing import Any

from voxload.cache.memory.handed import is_handed
from voxload.cache.memory.pages import SharedPages
from voxload.errors import DataError, StorageError, UsageError
from voxload.files.memory_left import memory_left

_FUTURE_WRITE = getattr(fcntl, "F_SEAL_FUTURE_WRITE", 0x10)  # Python 3.13 knows it by name
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | _FUTURE_WRITE


class SealedMemory(SharedPages):
    """So many bytes of memory, zero but for the `head`, that this process writes and others read; one owner closes it.

    Parameters
    ----------
    name
        For people, who meet it in ``/proc``; it need not be the only one.
    size
        Bytes.
    head
        First bytes.

    Raises
    ------
    UsageError
        Where the machine or a cgroup has no such room.
    StorageError
        Where the system has no such memory.
    """

    def __init__(self, name: str, *, size: int, head: bytes) -> None:
        self.path = f"memory {name}"
        writable = _allocated(name, size)
        try:
            super().__init__(writable, size, head)
            fcntl.fcntl(writable, fcntl.F_ADD_SEALS, _SEALS)
            self.descriptor = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(
                self.path, found=os.strerror(error.errno or 0), expected="sealed memory, as of Linux 5.1"
            ) from error
        finally:
            os.close(writable)
        self._finaliser = weakref.finalize(self, os.close, self.descriptor)

    def close(self) -> None:
        """Give up the descriptor and the mapping; who was given it has it still."""
        self._finaliser()
        super().close()


def _allocated(name: str, size: int) -> int:
    """Return the descriptor of new memory, all of it allocated."""
    allowed = memory_left()
    refusal = UsageError(
        f"memory {name}",
        found=f"{size} bytes projected",
        expected=f"at most {allowed} bytes allowed",
        remedy="lower the tier's capacity, or raise the memory limit",
    )
    if size > allowed:
        raise refusal
    try:
        descriptor = os.memfd_create(f"voxload-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise StorageError(f"memory {name}", found=os.strerror(error.errno or 0), expected="memfd_create") from error
    try:
        os.fchmod(descriptor, 0o600)  # who has it may not open it anew by /proc, unless it is the same user
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.close(descriptor)
        raise refusal from error
    return descriptor


def map_sealed(descriptor: int, name: str) -> mmap.mmap:
    """Map memory that another process handed over, to be read.

    Raises DataError where it is anything that could be written to or cut short by others, but root: a checksum then
    proves nothing, and a read may end the process.
    """
    seals: Any
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:  # what it says of anything but memory
        seals = 0
    if seals & _SEALS != _SEALS and not is_handed(descriptor, seals):
        raise DataError(name, found=f"seals {seals:#x}", expected=f"memory with seals {_SEALS:#x}")
    size = os.fstat(descriptor).st_size
    if not size:
        raise DataError(name, found="no bytes", expected="a memory tier")
    return mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
