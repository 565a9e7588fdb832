"""Ledger: what of an unfinished volume is safely stored; a record, see `voxload.files.records`.

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

from voxload.files.private import ForeignError
from voxload.files.records import open_record


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
