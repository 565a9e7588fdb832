"""Documents: small files of text that are parsed whole, of a bounded size and depth."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from voxload.limits import DOCUMENT
from voxload.regular import open_regular


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
