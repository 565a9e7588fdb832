"""Files that were written a while ago, as far as voxload can tell: only of such is anything kept."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tests.support.processes import LIMIT
from voxload.readers.storage.stamp import Stamp

_PAUSE = 0.01
_never = threading.Event()


def settle(path: Path) -> None:
    """Wait until what is written to a file, or to one below a folder, from now on gives it another stamp."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    youngest = max(files, key=lambda file: file.stat().st_ctime_ns)
    for _ in range(int(LIMIT / _PAUSE)):
        if Stamp.of(os.fspath(youngest)).is_settled:
            return
        _never.wait(_PAUSE)
    raise AssertionError(f"{youngest} does not settle")
