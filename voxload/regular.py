"""Regular files: what is named to be read is a file, or is refused at once.

Opening a named pipe waits for a writer that may never come, and a device such as /dev/zero has no end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from voxload.errors import UsageError

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a path that is neither a file nor a folder; links are followed. One that is not there is let by.

    Raises UsageError for a pipe, a device or a socket.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - of any path
    except (OSError, ValueError):  # whoever opens it says what is wrong
        return
    _check(path, status)


def open_regular(path: str | os.PathLike[str], *, buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading bytes.

    What was opened is looked at, not what had the name before. Raises UsageError for a pipe, a device or a socket, and
    what ``open`` raises for all else.
    """

    def opened(name: str, flags: int) -> int:
        # Without O_NONBLOCK, opening a pipe would wait for its writer; files do not care.
        descriptor = os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            _check(path, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    return open(Path(path), "rb", buffering=buffering, opener=opened)


def _check(path: str | os.PathLike[str], status: os.stat_result) -> None:
    found = _KINDS.get(stat.S_IFMT(status.st_mode))
    if found is not None:
        raise UsageError(
            os.fspath(path), found=found, expected="a file or folder", remedy="write the data to a file and name that"
        )
