"""One converter per folder: a lock that the kernel drops with the process that holds it.

Tasks that share a conversion hold the folder's lock together, and each a lock of its own, so that no two do the same.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voxload.convert.share import Share
from voxload.errors import StorageError, UsageError

LOCK_NAME = ".voxload-convert.lock"
"""Name of the lock file; it is there only while a conversion runs, or after one was killed."""


@contextmanager
def locked(folder: Path, share: Share | None = None) -> Iterator[None]:
    """Hold the only right to convert into `folder`, or to do this share of it; a killed holder's lock goes with it.

    The lock is of the file, not of its name: after a wait for nothing the name is looked up again, so that a
    holder may remove its file at the end.

    Raises
    ------
    UsageError
        When another process converts into the folder, does the same share, or shares it among another number.
    StorageError
        When the file system has no locks or refuses the file.
    """
    if share is None:
        with _held(folder / LOCK_NAME, f"process {os.getpid()}"):
            yield
        return
    own = folder / f".voxload-convert.{share.name}.lock"
    with _shared(folder / LOCK_NAME, f"{share.tasks} tasks"), _held(own, f"process {os.getpid()}"):
        yield


@contextmanager
def _held(path: Path, holder: str) -> Iterator[None]:
    """Hold a lock alone."""
    descriptor = _acquire(path)
    try:
        _say(descriptor, holder)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


@contextmanager
def _shared(path: Path, holder: str) -> Iterator[None]:
    """Hold a lock together with others that say the same."""
    descriptor = _join(path, holder)
    try:
        yield
    finally:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # others still hold it; the last of them removes it
        else:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _join(path: Path, holder: str) -> int:
    """Hold a lock with others that say the same, as the first of them or not."""
    while True:
        try:
            descriptor = _acquire(path)
        except UsageError:
            found = _join_others(path, holder)
            if found is not None:
                return found
        else:
            _say(descriptor, holder)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            return descriptor


def _join_others(path: Path, holder: str) -> int | None:
    """Hold a lock that somebody holds, if they say the same; None when they have just let go of it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    found = _said(descriptor)
    if found not in ("", holder):
        os.close(descriptor)
        raise UsageError(
            f"{path.parent}",
            found=f"another conversion into it, {found}",
            expected=holder,
            remedy="wait for it to end, or say the same --tasks",
        )
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits a moment where the first has not shared it yet
    if _is_still_there(descriptor, path) and _said(descriptor) == holder:
        return descriptor
    os.close(descriptor)
    return None


def _acquire(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"{path.parent}", found=os.strerror(error.errno or 0)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_there(descriptor, path):
                return descriptor
        except OSError as error:
            holder = _said(descriptor)
            os.close(descriptor)
            raise _refusal(path.parent, holder, error) from error
        os.close(descriptor)


def _say(descriptor: int, holder: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{holder}\n".encode(), 0)


def _said(descriptor: int) -> str:
    return os.pread(descriptor, 64, 0).decode(errors="replace").strip()


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
            found=f"another conversion into it, {holder or 'process unknown'}",
            expected="one at a time",
            remedy="wait for it to end, or choose another folder",
        )
    return StorageError(
        f"{folder}",
        found=f"no file locks ({os.strerror(error.errno or 0)})",
        remedy="mount it with locks (Lustre: -o flock) or convert into another file system",
    )
