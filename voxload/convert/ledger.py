"""Ledger: which units of an unfinished sample are safely stored.

A text file beside the unfinished sample: the sample's manifest on the first line, then one line per unit.
A line is written only after its unit was flushed to the device, so a line that can be read is true; a last
line that a crash cut short is left out.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

from voxload.convert.manifest import Manifest
from voxload.errors import DataError
from voxload.geometry import Box


class Ledger:
    """The record of one unfinished sample; one process, one thread.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: set[tuple[int, ...]] = set()
        self._descriptor: int | None = None

    def resume(self, manifest: Manifest) -> bool:
        """Take up the record of an interrupted run; False when there is none of this very conversion."""
        try:
            header, *lines = self._path.read_text(encoding="utf-8").split("\n")[:-1]
            before = Manifest.from_json(json.loads(header), f"{self._path}")
            self._done = {tuple(int(index) for index in line.split()) for line in lines}
        except (FileNotFoundError, ValueError, DataError):
            return False
        if not before.is_same_conversion(manifest):
            return False
        # A line that was cut short must not be continued.
        whole = self._path.read_bytes()
        os.truncate(self._path, whole.rfind(b"\n") + 1)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        return True

    def start(self, manifest: Manifest) -> None:
        """Begin an empty record."""
        self._done = set()
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC)
        try:
            self._append(json.dumps(manifest.to_json()))
        except OSError:
            self.remove()
            raise

    def has(self, unit: Box) -> bool:
        """Tell whether `unit` is stored."""
        return unit.start in self._done

    def add(self, unit: Box) -> None:
        """Record that `unit` is stored and flushed."""
        self._append(" ".join(map(str, unit.start)))
        self._done.add(unit.start)

    def _append(self, line: str) -> None:
        if self._descriptor is not None:
            content = f"{line}\n".encode()
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
