"""One converter per folder: a lock that the kernel drops with the process that holds it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voxload.errors import StorageError, UsageError

LOCK_NAME = ".voxload-convert.lock"
"""Name of the lock file; it is there only while a conversion runs, or after one was killed."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the only right to convert into `folder`; a killed holder's lock is gone with it.

    The lock is of the file, not of its name: after a wait for nothing the name is looked up again, so that a
    holder may remove its file at the end.

    Raises
    ------
    UsageError
        When another process converts into the folder.
    StorageError
        When the file system has no locks or refuses the file.
    """
    path = folder / LOCK_NAME
    descriptor = _acquire(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"{path.parent}", found=os.strerror(error.errno or 0)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_there(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return descriptor
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise _refusal(path.parent, holder, error) from error
        os.close(descriptor)


def _is_still_there(descriptor: int, path: Path) -> bool:
    """Tell whether the locked file still has its name: the holder before may have just removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _refusal(folder: Path, holder: str, error: OSError) -> UsageError | StorageError:
    if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
        return UsageError(
            f"{folder}",
            found=f"another conversion into it, process {holder or 'unknown'}",
            expected="one at a time",
            remedy="wait for it to end, or choose another folder",
        )
    return StorageError(
        f"{folder}",
        found=f"no file locks ({os.strerror(error.errno or 0)})",
        remedy="mount it with locks (Lustre: -o flock) or convert into another file system",
    )
