"""One converter per folder: a lock that the kernel drops with the process that holds it.

Tasks that share a conversion hold the folder's lock together, and each a lock of its own, so that no two do the same.

A lock is of a file, not of its name. A holder removes its file at the end, so whoever gets the lock of a file looks
whether the name still leads to it, and begins again where it does not. Who comes for a folder passes a door, one at a
time: taking a lock, saying whose it is and sharing it are three steps, and another process between them would see a
lock that has no holder, or the words of one that is dead.
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

from voxload.convert.options import Share
from voxload.convert.write.records import open_record, read_record
from voxload.errors import StorageError, UsageError
from voxload.files.private import ForeignError

LOCK_NAME = ".voxload-convert.lock"
"""Name of the lock file; it is there only while a conversion runs, or after one was killed."""
_DOOR = ".voxload-convert.door.lock"
_DOOR_PATIENCE = 60.0
"""Seconds to wait at the door: those before have a few system calls to make."""
_PAUSE = 0.02
"""Seconds between two tries of a lock that is waited for: the system has no wait for a lock that ends by itself."""


class BusyError(StorageError):
    """A lock that others hold for longer than one may wait."""


@contextmanager
def locked(folder: Path, share: Share | None = None) -> Iterator[None]:
    """Hold the only right to convert into `folder`, or to do this share of it; a killed holder's lock goes with it.

    Raises
    ------
    UsageError
        When another process converts into the folder, does the same share, or shares it among another number.
    StorageError
        When the file system has no locks or refuses the file.
    """
    me = f"process {os.getpid()}"
    if share is None:
        with _held(folder / LOCK_NAME, me):
            yield
        return
    own = folder / f".voxload-convert.{share.name}.lock"
    with _held(folder / LOCK_NAME, f"{share.tasks} tasks", is_shared=True), _held(own, me):
        yield


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
        _say(descriptor, f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


@contextmanager
def _held(path: Path, holder: str, *, is_shared: bool = False) -> Iterator[None]:
    """Hold a lock alone, or together with others that say the same; refuse to wait."""
    with exclusive(path.with_name(_DOOR), patience=_DOOR_PATIENCE):
        while (descriptor := _enter(path, holder, is_shared=is_shared)) is None:
            pass  # a holder was just leaving
    try:
        yield
    finally:
        if _try(descriptor, fcntl.LOCK_EX):  # else others still hold it, and the last of them removes it
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _enter(path: Path, holder: str, *, is_shared: bool) -> int | None:
    """Take a lock, at the door; None where its holder is just leaving. Raises UsageError when others hold it."""
    descriptor = _open(path)
    is_taken = False
    try:
        if _try(descriptor, fcntl.LOCK_EX):
            _say(descriptor, holder)
            # One that leaves may take the lock for its last look in the moment in which it becomes a shared one.
            is_taken = not is_shared or _try(descriptor, fcntl.LOCK_SH)
        elif is_shared and _said(descriptor) == holder:
            is_taken = _try(descriptor, fcntl.LOCK_SH)
        elif _is_still_there(descriptor, path):
            raise _refusal(path.parent, _said(descriptor), is_shared=is_shared)
        is_taken = is_taken and _is_still_there(descriptor, path)
    finally:
        if not is_taken:
            os.close(descriptor)
    return descriptor if is_taken else None


def _try_alone(path: Path) -> int | None:
    """Return the file with its lock, None where another holds it or has just removed it."""
    descriptor = _open(path)
    is_taken = False
    try:
        is_taken = _try(descriptor, fcntl.LOCK_EX) and _is_still_there(descriptor, path)
    finally:
        if not is_taken:
            os.close(descriptor)
    return descriptor if is_taken else None


def _open(path: Path) -> int:
    try:
        return open_record(path, os.O_RDWR | os.O_CREAT)
    except ForeignError:
        raise
    except OSError as error:
        raise StorageError(f"{path.parent}", found=os.strerror(error.errno or 0)) from error


def _try(descriptor: int, kind: int) -> bool:
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


def _say(descriptor: int, holder: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{holder}\n".encode(), 0)


def _said(descriptor: int) -> str:
    return os.pread(descriptor, 256, 0).decode(errors="replace").strip()


def _holder(path: Path) -> str:
    try:
        return (read_record(path) or "").strip()
    except OSError:  # it is only for the message
        return ""


def _is_still_there(descriptor: int, path: Path) -> bool:
    """Tell whether the locked file still has its name: the holder before may have just removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _refusal(folder: Path, holder: str, *, is_shared: bool) -> UsageError:
    other = "say the same --tasks" if is_shared else "choose another folder"
    return UsageError(
        f"{folder}",
        found=f"another conversion into it, {holder or 'process unknown'}",
        expected="one at a time",
        remedy=f"wait for it to end, or {other}",
    )
