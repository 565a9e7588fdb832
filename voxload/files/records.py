"""Records: small files in which processes say what is done and who is at it, in folders that others may write into.

A record that somebody else wrote could say that something is stored which is not. So one is believed, and written to,
only if it is a regular file with one name, of the effective user, of root, or of the owner of its folder, who may put
other volumes there anyway. Nobody waits for a FIFO, follows a link, or empties a file that has another name elsewhere.
Whoever may write into a folder of samples decides what its samples are: that no record can help.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from voxload.files.private import ForeignError

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_record(path: Path, flags: int) -> int:
    """Open a record, or make it (0644); return its descriptor.

    Raises
    ------
    ForeignError
        Where it is not to be believed.
    OSError
        Where the system refuses it.
    """
    try:
        descriptor = os.open(path, flags & ~os.O_TRUNC | _FLAGS, 0o644)
    except PermissionError:
        _refuse_foreign(path)
        raise
    try:
        _check(path, os.fstat(descriptor))
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)  # not before it is known what it is
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_own(path: Path) -> bool:
    """Tell whether a record is there and is to be believed."""
    try:
        _check(path, path.lstat())
    except OSError:
        return False
    return True


def is_own_folder(path: Path) -> bool:
    """Tell whether a folder is there, no link to one, and made by someone whose record is believed."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid in _owners(path)


def read_record(path: Path) -> str | None:
    """Return what a record says; None where there is none that is to be believed."""
    try:
        with os.fdopen(open_record(path, os.O_RDONLY), errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ForeignError):
        return None


def write_record(path: Path, text: str) -> None:
    """Write a record; raises as `open_record` does."""
    with os.fdopen(open_record(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
        file.write(text)


def _owners(path: Path) -> set[int]:
    return {0, os.geteuid(), path.parent.stat().st_uid}


def _refuse_foreign(path: Path) -> None:
    """Say whose a file is that the system does not open."""
    status = path.lstat()
    if status.st_uid != os.geteuid():
        _check(path, status)


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_uid not in _owners(path):
        raise ForeignError(
            f"{path}",
            found=f"{stat.filemode(status.st_mode)} of user {status.st_uid} with {status.st_nlink} names",
            expected="a regular file with one name, of this user or of the folder's owner",
            remedy="remove it, or choose another folder",
        )
