"""Spool: files that encoded chunks are appended to, and that a later run can take up where a record says they end.

Where a chunk begins is known at once; threads write it meanwhile. They are not those that compress, behind whose jobs a
write would wait, and with it whoever hands out jobs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from voxload.convert.plan.tiles import WRITES
from voxload.errors import StorageError
from voxload.files.names import inside

OPEN_FILES = 64
"""Files kept open: a slab of a volume is of fewer shards, and other work of the process needs descriptors, too."""

_MOST_PARTS = 1024
"""Parts that one system call takes, at most. Source: limits.h of Linux, IOV_MAX."""


@dataclass(frozen=True, slots=True)
class Unsynced:
    """What was appended to files and is not safe yet."""

    descriptors: tuple[int, ...]
    """The files, under descriptors of their own."""
    writes: tuple[Future[None], ...]
    """What may still be under way."""

    def sync(self) -> None:
        """Wait for the writes, flush the files to the device, and close these descriptors of them."""
        try:
            for write in self.writes:
                write.result()
            for descriptor in self.descriptors:
                os.fdatasync(descriptor)
        finally:
            for descriptor in self.descriptors:
                os.close(descriptor)


class Spool:
    """Files of one unfinished volume; for one thread, and one other that syncs.

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
        self._writers = ThreadPoolExecutor(WRITES, thread_name_prefix="voxload-write")
        self._open: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._dirty: set[int] = set()
        self._writes: deque[Future[None]] = deque()

    def path(self, number: int) -> Path:
        """Return where a file is."""
        return inside(self._folder, self._name_of(number))

    def resume(self, ends: Mapping[int, int]) -> None:
        """Take up files of an interrupted run: what is behind their recorded ends is cut off.

        Raises StorageError when a file is shorter than its record, whatever made it so.
        """
        for number, end in ends.items():
            path = self.path(number)
            size = path.stat().st_size if path.exists() else 0
            if size < end:
                raise StorageError(
                    f"{path}",
                    found=f"{size} bytes",
                    expected=f"the {end} that were flushed to it",
                    remedy=f"the storage has lost data: remove {self._folder} and convert again",
                )
            os.truncate(path, end)
        self._ends = dict(ends)

    def append(self, pieces: Sequence[tuple[int, Sequence[bytes]]]) -> list[int]:
        """Append data to files, one behind the other, and return where they begin; raises what earlier writes did."""
        while len(self._writes) >= WRITES:
            self._writes.popleft().result()
        offsets: list[int] = []
        runs: list[_Run] = []
        for number, data in pieces:
            if number not in self._open:
                self._open[number] = self._start(number)
            offset = self._ends.get(number, 0)
            offsets.append(offset)
            self._ends[number] = offset + sum(map(len, data))
            if not runs or runs[-1].descriptor != self._open[number]:
                runs.append(_Run(self._open[number], offset, []))
            runs[-1].data.extend(data)
            self._dirty.add(number)
        self._writes.append(self._writers.submit(_write, runs))
        return offsets

    def unsynced(self) -> Unsynced:
        """Return what was appended since the last call, which has been synced.

        Files that were not appended to are closed where many are open.
        """
        found = Unsynced(tuple(os.dup(self._open[number]) for number in sorted(self._dirty)), tuple(self._writes))
        if len(self._open) > OPEN_FILES:
            for number in set(self._open) - self._dirty:
                os.close(self._open.pop(number))
        self._dirty.clear()
        return found

    def close(self) -> None:
        """Close the files and leave them; what is being written is waited for, whatever becomes of it."""
        self._writers.shutdown(wait=True)
        while self._open:
            os.close(self._open.popitem()[1])

    def _start(self, number: int) -> int:
        path = self.path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o644)
        # What an interrupted run wrote and did not record is no part of the file.
        os.ftruncate(descriptor, self._ends.get(number, 0))
        return descriptor


@dataclass(frozen=True, slots=True)
class _Run:
    """Data that are one behind the other in a file."""

    descriptor: int
    """The file."""
    offset: int
    """Where they begin."""
    data: list[bytes]
    """Parts of them."""


def _write(runs: Sequence[_Run]) -> None:
    for run in runs:
        offset = run.offset
        for first in range(0, len(run.data), _MOST_PARTS):
            offset = _write_parts(run.descriptor, run.data[first : first + _MOST_PARTS], offset)


def _write_parts(descriptor: int, parts: Sequence[bytes], offset: int) -> int:
    """Write parts one behind the other and return where they end."""
    left = deque(memoryview(part) for part in parts)
    while left:
        written = os.pwritev(descriptor, left, offset)
        offset += written
        while left and written >= len(left[0]):
            written -= len(left.popleft())
        if left:
            left[0] = left[0][written:]
    return offset
