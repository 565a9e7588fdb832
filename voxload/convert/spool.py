"""Spool: files that encoded chunks are appended to, and that a later run can take up where a record says they end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from voxload.errors import StorageError

OPEN_FILES = 64
"""Files kept open: a slab of a volume is of fewer shards, and other work of the process needs descriptors, too."""


class Spool:
    """Files of one unfinished volume; `append` from one thread, `sync` from one other.

    Parameters
    ----------
    folder
        Where the files are.
    name_of
        Gives a file's path in `folder` by its number.
    """

    def __init__(self, folder: Path, name_of: Callable[[int], str]) -> None:
        self._folder = folder
        self._name_of = name_of
        self._open: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._dirty: set[int] = set()

    def path(self, number: int) -> Path:
        """Return where a file is."""
        return self._folder / self._name_of(number)

    def resume(self, ends: Mapping[int, int]) -> None:
        """Take up files of an interrupted run: what is behind their recorded ends is cut off.

        Raises StorageError when a file is shorter than its record, whatever made it so.
        """
        for number, end in ends.items():
            path = self.path(number)
            if path.stat().st_size < end:
                raise StorageError(
                    f"{path}",
                    found=f"{path.stat().st_size} bytes",
                    expected=f"the {end} that were flushed to it",
                    remedy=f"the storage has lost data: remove {self._folder} and convert again",
                )
            os.truncate(path, end)
        self._ends = dict(ends)

    def append(self, number: int, data: bytes) -> int:
        """Append to a file and return where the data begin."""
        if number not in self._open:
            self._open[number] = self._start(number)
        offset = self._ends.setdefault(number, 0)
        self._dirty.add(number)
        view = memoryview(data)
        while view:
            written = os.pwrite(self._open[number], view, self._ends[number])
            self._ends[number] += written
            view = view[written:]
        return offset

    def dirty(self) -> list[int]:
        """Return duplicates of the descriptors of files that were appended to since the last call; `sync` takes them.

        Files that were not are closed where many are open.
        """
        found = [os.dup(self._open[number]) for number in sorted(self._dirty)]
        if len(self._open) > OPEN_FILES:
            for number in set(self._open) - self._dirty:
                os.close(self._open.pop(number))
        self._dirty.clear()
        return found

    def close(self) -> None:
        """Close the files and leave them."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _start(self, number: int) -> int:
        path = self.path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
        # What an interrupted run wrote and did not record is no part of the file.
        os.ftruncate(descriptor, self._ends.get(number, 0))
        return descriptor


def sync(descriptors: list[int]) -> None:
    """Flush files to the device and close these descriptors of them."""
    try:
        for descriptor in descriptors:
            os.fdatasync(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
