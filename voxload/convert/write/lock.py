"""One converter per folder: a lock that the kernel drops with the process that holds it.

Tasks that share a conversion hold the folder's lock together, and each a lock of its own, so that no two do the same.

A lock is of a file, not of its name. A holder removes its file at the end, so whoever gets the lock of a file looks
whether the name still leads to it, and begins again where it does not. Who comes for a folder passes a door, one at a
time: taking a lock, saying whose it is and sharing it are three steps, and another process between them would see a
lock that has no holder, or the words of one that is dead.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voxload.convert.options import Share
from voxload.errors import UsageError
from voxload.files.lock import exclusive, is_still_there, opened, said, say, taken

LOCK_NAME = ".voxload-convert.lock"
"""Name of the lock file; it is there only while a conversion runs, or after one was killed."""
_DOOR = ".voxload-convert.door.lock"
_DOOR_PATIENCE = 60.0
"""Seconds to wait at the door: those before have a few system calls to make."""


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
def _held(path: Path, holder: str, *, is_shared: bool = False) -> Iterator[None]:
    """Hold a lock alone, or together with others that say the same; refuse to wait."""
    with exclusive(path.with_name(_DOOR), patience=_DOOR_PATIENCE):
        while (descriptor := _enter(path, holder, is_shared=is_shared)) is None:
            pass  # a holder was just leaving
    try:
        yield
    finally:
        if taken(descriptor, fcntl.LOCK_EX):  # else others still hold it, and the last of them removes it
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _enter(path: Path, holder: str, *, is_shared: bool) -> int | None:
    """Take a lock, at the door; None where its holder is just leaving. Raises UsageError when others hold it."""
    descriptor = opened(path)
    is_taken = False
    try:
        if taken(descriptor, fcntl.LOCK_EX):
            say(descriptor, holder)
            # One that leaves may take the lock for its last look in the moment in which it becomes a shared one.
            is_taken = not is_shared or taken(descriptor, fcntl.LOCK_SH)
        elif is_shared and said(descriptor) == holder:
            is_taken = taken(descriptor, fcntl.LOCK_SH)
        elif is_still_there(descriptor, path):
            raise _refusal(path.parent, said(descriptor), is_shared=is_shared)
        is_taken = is_taken and is_still_there(descriptor, path)
    finally:
        if not is_taken:
            os.close(descriptor)
    return descriptor if is_taken else None


def _refusal(folder: Path, holder: str, *, is_shared: bool) -> UsageError:
    other = "say the same --tasks" if is_shared else "choose another folder"
    return UsageError(
        f"{folder}",
        found=f"another conversion into it, {holder or 'process unknown'}",
        expected="one at a time",
        remedy=f"wait for it to end, or {other}",
    )
