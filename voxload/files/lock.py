"""Locks of files, which the kernel drops with the process that holds them.

A lock is of a file, not of its name. A holder removes its file at the end, so whoever gets the lock of a file looks
whether the name still leads to it, and begins again where it does not.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voxload.errors import StorageError
from voxload.files.private import ForeignError
from voxload.files.records import open_record, read_record

_PAUSE = 0.02
"""Seconds between two tries of a lock that is waited for: the system has no wait for a lock that ends by itself."""


class BusyError(StorageError):
    """A lock that others hold for longer than one may wait."""


@contextmanager
def exclusive(path: Path, *, patience: float) -> Iterator[None]:
    """Hold the lock of a file, which is removed at the end, waiting so many seconds for others.

    Raises
    ------
    BusyError
        When another process holds it all the while; names that process.
    StorageError
        When the file system has no locks or refuses the file.
    """
    deadline = time.monotonic() + patience
    while (descriptor := _try_alone(path)) is None:
        if time.monotonic() >= deadline:
            raise BusyError(
                f"{path}",
                found=f"the lock of {_holder(path) or 'a process unknown'} after {patience:g} s",
                expected="one process at a time",
                remedy="end that process, or wait for it, and run the same command again",
            )
        time.sleep(_PAUSE)
    try:
        say(descriptor, f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _try_alone(path: Path) -> int | None:
    """Return the file with its lock, None where another holds it or has just removed it."""
    descriptor = opened(path)
    is_taken = False
    try:
        is_taken = taken(descriptor, fcntl.LOCK_EX) and is_still_there(descriptor, path)
    finally:
        if not is_taken:
            os.close(descriptor)
    return descriptor if is_taken else None


def opened(path: Path) -> int:
    """Open the file of a lock, or make it; raises StorageError where it is refused."""
    try:
        return open_record(path, os.O_RDWR | os.O_CREAT)
    except ForeignError:
        raise
    except OSError as error:
        raise StorageError(f"{path.parent}", found=os.strerror(error.errno or 0)) from error


def taken(descriptor: int, kind: int) -> bool:
    """Take a file's lock, or tell that another process has it; raises StorageError when there are no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise StorageError(
            f"{Path(f'/proc/self/fd/{descriptor}').readlink().parent}",
            found=f"no file locks ({os.strerror(error.errno or 0)})",
            remedy="mount it with locks (Lustre: -o flock) or convert into another file system",
        ) from error
    return True


def say(descriptor: int, holder: str) -> None:
    """Write into a locked file who holds it."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{holder}\n".encode(), 0)


def said(descriptor: int) -> str:
    """Return who holds the lock of a file, by its words."""
    return os.pread(descriptor, 256, 0).decode(errors="replace").strip()


def is_still_there(descriptor: int, path: Path) -> bool:
    """Tell whether the locked file still has its name: the holder before may have just removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    try:
        return (read_record(path) or "").strip()
    except OSError:  # it is only for the message
        return ""
