"""Ledger: what of an unfinished volume is safely stored.

A text file beside the unfinished volume: what is converted on the first line, then one line per step, each in JSON. A
line is written only after its step was flushed to the device, so a line that can be read is true; a last line that a
crash cut short is left out.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any


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
        """Take up the record of an interrupted run; return its lines, None when there is none of this conversion."""
        try:
            whole = self._path.read_bytes()
            header, *lines = whole[: whole.rfind(b"\n") + 1].decode().splitlines()
            steps = [json.loads(line) for line in lines]
            if json.loads(header) != identity:
                return None
        except (FileNotFoundError, ValueError):
            return None
        # A line that was cut short must not be continued.
        os.truncate(self._path, whole.rfind(b"\n") + 1)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        return steps

    def start(self, identity: dict[str, Any]) -> None:
        """Begin an empty record."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags)
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
