"""Handles: a bounded set of open readers, shared by threads and never by processes."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from voxload.readers.generation import as_dated
from voxload.readers.protocol import Location, Missing, Reader
from voxload.readers.registry import open_reader
from voxload.readers.window import WindowReader

OPEN_READERS = 64
"""Readers kept open. Opening costs round trips to a metadata server, but a job's files outnumber descriptors."""


@dataclass(slots=True)
class _Handle:
    """One reader, or the promise of it, with the number of threads that use it now."""

    opening: threading.Lock = field(default_factory=threading.Lock)
    """Held while the reader is being opened, so that it is opened once."""
    reader: Reader | None = None
    """The reader once it is open."""
    users: int = 0
    """Threads inside `lease`; a handle in use is never closed."""

    def is_outdated(self) -> bool:
        """Tell whether the reader, if it is open, should be opened anew."""
        dated = None if self.reader is None else as_dated(self.reader)
        return dated is not None and dated.is_outdated()


class Handles:
    """Opens readers when they are first needed, and closes the least recently used beyond `capacity`.

    A file whose rights, names or times were changed is opened anew: its writer may have set its time of writing back.

    Safe to use from many threads. A forked child or an unpickled copy starts with nothing open: an HDF5
    handle that two processes share serves neither.
    """

    def __init__(self, missing: str | Missing, *, capacity: int = OPEN_READERS) -> None:
        self._missing = Missing.parse(missing)
        self._capacity = capacity
        self._reset()

    def _reset(self) -> None:
        _ALL.add(self)
        self._lock = threading.Lock()
        self._handles: OrderedDict[Location, _Handle] = OrderedDict()

    def __getstate__(self) -> tuple[Missing, int]:
        return self._missing, self._capacity

    def __setstate__(self, state: tuple[Missing, int]) -> None:
        self._missing, self._capacity = state
        self._reset()

    @contextmanager
    def lease(self, location: Location) -> Iterator[Reader]:
        """Yield the open reader of `location`; it stays open at least until the block ends.

        Windows of one stored volume share its reader.
        """
        stored = location.stored
        handle = self._take(stored)
        if handle.is_outdated():
            self._retire(stored, handle)
            handle = self._take(stored)
        try:
            with handle.opening:
                if handle.reader is None:
                    handle.reader = open_reader(stored, missing=self._missing)
            whole, window = handle.reader, location.window
            yield whole if window is None else WindowReader(whole, location, window=window, owns=False)
        finally:
            for reader in self._release(stored, handle):
                reader.close()

    def _take(self, location: Location) -> _Handle:
        """Return a location's handle with one user more."""
        with self._lock:
            handle = self._handles.setdefault(location, _Handle())
            self._handles.move_to_end(location)
            handle.users += 1
            return handle

    def _retire(self, location: Location, handle: _Handle) -> None:
        """Leave a handle to those who use it; the last of them closes it."""
        with self._lock:
            if self._handles.get(location) is handle:
                del self._handles[location]
        for reader in self._release(location, handle):
            reader.close()

    def _release(self, location: Location, handle: _Handle) -> list[Reader]:
        """Count one user less and return the readers to close: closing does I/O, so it happens outside the lock."""
        with self._lock:
            handle.users -= 1
            if self._handles.get(location) is not handle:  # it was retired
                return [] if handle.users or handle.reader is None else [handle.reader]
            if handle.reader is None and not handle.users:
                self._handles.pop(location, None)
            beyond = len(self._handles) - self._capacity
            if beyond <= 0:  # nearly always: no handle needs to be looked at
                return []
            surplus = list(islice((place for place, other in self._handles.items() if not other.users), beyond))
            dropped = [self._handles.pop(place).reader for place in surplus]
        return [reader for reader in dropped if reader is not None]

    def close(self) -> None:
        """Close every reader; one that is in use is closed by its last user. The next lease opens anew.

        A loader that goes does not wait for its reads, which would find a closed reader.
        """
        with self._lock:
            unused = [handle.reader for handle in self._handles.values() if not handle.users]
            self._handles.clear()
        for reader in unused:
            if reader is not None:
                reader.close()


_ALL: weakref.WeakSet[Handles] = weakref.WeakSet()
"""Every living set of handles: a forked child forgets them all before it runs anything else."""


def _forget_in_child() -> None:
    for handles in list(_ALL):
        handles._reset()  # noqa: SLF001 - nobody else may start a living object anew


os.register_at_fork(after_in_child=_forget_in_child)
