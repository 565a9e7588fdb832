"""Regular files: what is named to be read is one or is refused at once; documents, read whole within a limit.

Opening a named pipe waits for a writer that may never come, and a device such as /dev/zero has no end.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from typing import Any, BinaryIO

from voxload.errors import UsageError
from voxload.files.limits import DOCUMENT

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

    return open(os.fspath(path), "rb", buffering=buffering, opener=opened)


def _check(path: str | os.PathLike[str], status: os.stat_result) -> None:
    found = _KINDS.get(stat.S_IFMT(status.st_mode))
    if found is not None:
        raise UsageError(
            os.fspath(path), found=found, expected="a file or folder", remedy="write the data to a file and name that"
        )


def read_document(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file that is to be parsed.

    Raises
    ------
    UsageError
        When it is a pipe, a device or a socket.
    DataError
        When it is larger than the limit, however large it says to be.
    OSError
        As ``open`` and ``read`` do.
    """
    with open_regular(path) as file:
        DOCUMENT.check(os.fspath(path), os.fstat(file.fileno()).st_size, "a document")
        data = file.read(DOCUMENT.allowed + 1)  # files of /proc say that they are empty
    DOCUMENT.check(os.fspath(path), len(data), "a document")
    return data


def read_text(path: str | os.PathLike[str]) -> str:
    """Return a document in UTF-8; raises as `read_document` does, and UnicodeDecodeError."""
    return read_document(path).decode("utf-8")


def parse_json(text: str | bytes, *, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse JSON; raises ValueError for what is none, and for what is nested deeper than Python can follow."""
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
