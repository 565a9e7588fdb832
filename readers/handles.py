"""Handles: a bounded set of open readers, shared by threads and never by processes."""

from __future__ import annotations

import os
import resource
import threading
import weakref
from collections import OrderedDict
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from voxload.readers.generation import as_dated
from voxload.readers.protocol import Location, Missing, Reader, VolumeInfo, held_bytes
from voxload.readers.registry import open_reader
from voxload.readers.views.located import located

HELD_BYTES = 2**26
"""Most bytes that open readers hold together, as far as they know. Opening costs round trips to a metadata server and
half a millisecond of this process, in which a small sample is read."""
_MOST_OPEN = 4096
_LEAST_OPEN = 16
_SHARE = 8
"""Readers kept open are at most this part of the descriptors that a process may have, which has other files, too. A
second set of readers gets a half of that, a third one a third: twenty of them together take less than a half of all."""


@dataclass(slots=True)
class _Handle:
    """One reader, or the promise of it, with the number of threads that use it now."""

    opening: threading.Lock = field(default_factory=threading.Lock)
    """Held while the reader is being opened, so that it is opened once."""
    reader: Reader | None = None
    """The reader once it is open."""
    users: int = 0
    """Threads inside `lease`; a handle in use is never closed."""
    nbytes: int = 0
    """Bytes that it is counted for."""

    def is_outdated(self) -> bool:
        """Tell whether the reader, if it is open, should be opened anew."""
        dated = None if self.reader is None else as_dated(self.reader)
        return dated is not None and dated.is_outdated()


class _Lease(AbstractContextManager[Reader]):
    """One use of a reader; small samples take hardly longer than a generator would."""

    __slots__ = ("_handle", "_handles", "_location")

    def __init__(self, handles: Handles, location: Location) -> None:
        self._handles, self._location = handles, location
        self._handle: _Handle | None = None

    def __enter__(self) -> Reader:
        self._handle, reader = self._handles.enter(self._location)
        return reader

    def __exit__(self, *_: object) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._handles.leave(self._location, handle)


class Handles:
    """Opens readers when they are first needed, and closes the least recently used beyond `HELD_BYTES` and a number.

    The number is `capacity`, by default a part of the descriptors that the process may have.

    A file whose rights, names or times were changed is opened anew: its writer may have set its time of writing back.

    Safe to use from many threads. A forked child or an unpickled copy starts with nothing open: an HDF5
    handle that two processes share serves neither.
    """

    def __init__(self, missing: str | Missing, *, capacity: int | None = None) -> None:
        self._missing = Missing.parse(missing)
        self._given = capacity
        self._reset()

    def _reset(self) -> None:
        _ALL.add(self)
        self._lock = threading.Lock()
        self._handles: OrderedDict[Location, _Handle] = OrderedDict()
        self._held = 0
        self._capacity = _most_open(len(_ALL)) if self._given is None else self._given

    def __getstate__(self) -> tuple[Missing, int | None]:
        return self._missing, self._given

    def __setstate__(self, state: tuple[Missing, int | None]) -> None:
        self._missing, self._given = state
        self._reset()

    def lease(self, location: Location) -> AbstractContextManager[Reader]:
        """Give the open reader of `location` to a block; it stays open at least until the block ends.

        Parts of one stored volume, windows and time steps, share its reader.
        """
        return _Lease(self, location)

    def known(self, location: Location) -> VolumeInfo | None:
        """Return what is known of a volume whose reader is open, without opening or reading anything; else None.

        It takes no lock: who prints an object in a debugger may stand where one is held.
        """
        stored = location.stored
        handle = self._handles.get(stored)
        reader = None if handle is None else handle.reader
        if reader is None:
            return None
        return (reader if stored is location else located(reader, location, owns=False)).describe()

    def enter(self, location: Location) -> tuple[_Handle, Reader]:
        """Begin a lease; see `lease`."""
        stored = location.stored
        handle = self._take(stored)
        if handle.reader is not None and handle.is_outdated():
            self._retire(stored, handle)
            handle = self._take(stored)
        try:
            if handle.reader is None:
                with handle.opening:
                    if handle.reader is None:
                        handle.reader = open_reader(stored, missing=self._missing)
            whole = handle.reader
            reader = whole if stored is location else located(whole, location, owns=False)
        except BaseException:
            self.leave(location, handle)
            raise
        return handle, reader

    def leave(self, location: Location, handle: _Handle) -> None:
        """End a lease."""
        for reader in self._release(location.stored, handle):
            reader.close()

    def forget(self, location: Location) -> None:
        """Let the next lease open a volume anew: a reader refuses a file that was written to since it was opened."""
        stored = location.stored
        self._retire(stored, self._take(stored))

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
                self._forget(location)
        for reader in self._release(location, handle):
            reader.close()

    def _release(self, location: Location, handle: _Handle) -> list[Reader]:
        """Count one user less and return the readers to close: closing does I/O, so it happens outside the lock."""
        with self._lock:
            handle.users -= 1
            if self._handles.get(location) is not handle:  # it was retired
                return [] if handle.users or handle.reader is None else [handle.reader]
            if handle.reader is None:
                if not handle.users:
                    self._forget(location)
                return []
            nbytes = held_bytes(handle.reader)
            self._held, handle.nbytes = self._held + nbytes - handle.nbytes, nbytes
            if self._held <= HELD_BYTES and len(self._handles) <= self._capacity:  # nearly always
                return []
            dropped = self._surplus()
        return [reader for reader in dropped if reader is not None]

    def _surplus(self) -> list[Reader | None]:
        """Forget the readers that were not used for longest, until the rest is within bounds; under the lock."""
        held, left, chosen = self._held, len(self._handles), []
        for place, handle in self._handles.items():
            if held <= HELD_BYTES and left <= self._capacity:
                break
            if not handle.users:
                held, left = held - handle.nbytes, left - 1
                chosen.append(place)
        return [self._forget(place).reader for place in chosen]

    def _forget(self, location: Location) -> _Handle:
        handle = self._handles.pop(location)
        self._held -= handle.nbytes
        return handle

    def close(self) -> None:
        """Close every reader; one that is in use is closed by its last user. The next lease opens anew.

        A loader that goes does not wait for its reads, which would find a closed reader.
        """
        with self._lock:
            unused = [handle.reader for handle in self._handles.values() if not handle.users]
            self._handles.clear()
            self._held = 0
        for reader in unused:
            if reader is not None:
                reader.close()


def _most_open(sets: int) -> int:
    """Return how many readers the last of so many sets may keep open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_OPEN
    return max(_LEAST_OPEN, min(_MOST_OPEN, soft // _SHARE // sets))


_ALL: weakref.WeakSet[Handles] = weakref.WeakSet()
"""Every living set of handles: a forked child forgets them all before it runs anything else."""


def _forget_in_child() -> None:
    for handles in list(_ALL):
        handles._reset()  # noqa: SLF001 - nobody else may start a living object anew


os.register_at_fork(after_in_child=_forget_in_child)
