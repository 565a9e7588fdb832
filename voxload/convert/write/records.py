"""Records: the files in which a conversion says what is done and who is at it.

The ledger of an unfinished volume is one of them.

A record that somebody else wrote could say that a volume is stored which is not. So one is believed, and written to,
only if it is a regular file with one name, of the effective user, of root, or of the owner of its folder, who may put
other volumes there anyway. Nobody waits for a FIFO, follows a link, or empties a file that has another name elsewhere.
Whoever may write into a folder of samples decides what its samples are: that no record can help.

Ledger: what of an unfinished volume is safely stored. A text file beside the unfinished volume: what is converted on
the first line, then one line per step, each in JSON. A line is written only after its step was flushed to the device,
so a line that can be read is true; a last line that a crash cut short is left out.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

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


class Ledger:
    """The record of one unfinished volume; one process, one thread at a time.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def resume(self, identity: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Take up the record of an interrupted run; return its lines, None when there is none of this conversion.

        What somebody else may have written is none: it could tell of chunks that nobody stored.
        """
        try:
            descriptor = open_record(self._path, os.O_RDWR | os.O_APPEND)
        except (FileNotFoundError, ForeignError):
            return None
        steps = self._read(descriptor, identity)
        if steps is None:
            os.close(descriptor)
        else:
            self._descriptor = descriptor
        return steps

    @staticmethod
    def _read(descriptor: int, identity: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Return the lines of a record of this conversion, without a last one that was cut short."""
        with os.fdopen(os.dup(descriptor), "rb") as file:
            whole = file.read()
        try:
            header, *lines = whole[: whole.rfind(b"\n") + 1].decode().splitlines()
            steps = [json.loads(line) for line in lines]
            if json.loads(header) != identity:
                return None
        except ValueError:
            return None
        # A line that was cut short must not be continued.
        os.ftruncate(descriptor, whole.rfind(b"\n") + 1)
        return steps

    def start(self, identity: dict[str, Any]) -> None:
        """Begin an empty record."""
        self._descriptor = open_record(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        try:
            self.add(identity)
        except OSError:
            self.remove()
            raise

    def add(self, step: dict[str, Any]) -> None:
        """Record a step that is stored and flushed."""
        if self._descriptor is not None:
            content = f"{json.dumps(step)}\n".encode()
            if os.write(self._descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file and leave it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Close the file and remove it."""
        self.close()
        self._path.unlink(missing_ok=True)
