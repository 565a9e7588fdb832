"""Read-ahead: telling the system which ranges of files a read will want, before its threads come to them.

A thread that reads a chunk from a device waits for it; two threads keep two requests under way, where a device wants
dozens. Ranges that were announced are fetched by the system meanwhile, into the page cache, and cost no memory of
ours. Where the pages are there already, nothing is announced: each announcement would look all of them up.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from voxload.errors import DataError
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.scratch import Bytes

T = TypeVar("T")

WINDOW_BYTES = 2**25
"""Announced ahead of the chunk at hand: more than any device has under way, and little of any page cache."""
PIECE_BYTES = 2**18
"""Announced at once. Linux cuts an announcement off at the longest request of the device (``read_ahead_kb`` or
``max_sectors_kb``), which is rarely less, and does not say so."""
_libc = ctypes.CDLL(None)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
FEW = 4
"""Fewer chunks than this are asked for at once anyway, by the threads that decode them."""
_PROBES = 3
"""Ranges that are looked at to tell whether a read will wait: the first, one in the middle and the last."""


class Announced(Protocol):
    """A file whose ranges can be announced, or fetched at once."""

    path: str
    """Its path."""

    def fresh(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset` in memory of their own."""
        ...

    def is_cold(self, offset: int) -> bool:
        """Tell whether the byte at `offset` is not in memory."""
        ...

    def announce(self, offset: int, length: int) -> None:
        """Tell the system that a range will be read."""
        ...


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a file."""

    file: Announced
    """Which file."""
    offset: int
    """First byte."""
    length: int
    """How many."""


Where = Callable[[Place], FileRange | None]
"""Returns where a chunk is stored, or None where it was never written."""


class ReadAhead:
    """Announces the chunks of one read in the order of their use; safe to use from many threads at once.

    Parameters
    ----------
    places
        What will be read, in that order.
    where
        Where it is stored.
    """

    def __init__(self, places: Sequence[Place], where: Where) -> None:
        self._left: Iterator[Place] = iter(places)
        self._where = where

    def start(self) -> None:
        """Announce the first places."""
        room = WINDOW_BYTES
        for place in self._left:
            room -= self._announce(quietly(self._where, place))
            if room <= 0:
                return

    def advance(self) -> None:
        """Announce the next place: one more was read."""
        for place in self._left:  # an iterator of a list hands each item to one thread only
            self._announce(quietly(self._where, place))
            return

    @staticmethod
    def _announce(found: FileRange | None) -> int:
        """Announce a range and return its length."""
        if found is None:
            return 0
        for start in range(found.offset, found.offset + found.length, PIECE_BYTES):
            found.file.announce(start, min(PIECE_BYTES, found.offset + found.length - start))
        return found.length


def probed(places: Sequence[T]) -> list[T]:
    """Return the few of `places` that are looked at to tell whether a read will wait."""
    last = len(places) - 1
    return [places[place] for place in sorted({last * number // (_PROBES - 1) for number in range(_PROBES)})]


def quietly(where: Where, place: Place) -> FileRange | None:
    """Return where a chunk is stored, or None where that cannot be told: whoever fetches it will say why."""
    try:
        return where(place)
    except (DataError, OSError):
        return None


def is_cold(places: Sequence[Place], where: Where) -> bool:
    """Tell whether a read of `places` will wait for the device; no, when they are so few that nothing comes ahead."""
    if len(places) < FEW:
        return False
    ranges = [quietly(where, place) for place in probed(places)]
    return any(found is not None and found.file.is_cold(found.offset) for found in ranges)


def is_cold_byte(descriptor: int, offset: int) -> bool:
    """Tell whether reading a byte of an open file would wait for the device; False where the system does not say."""
    try:
        os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:  # file systems without the flag
        return False
    return False


def is_cold_page(at: int) -> bool:
    """Tell whether the page of a map that holds the address `at` is not in memory (mincore(2))."""
    state = ctypes.c_ubyte()
    if _libc.mincore(at - at % mmap.PAGESIZE, 1, ctypes.byref(state)):
        return False
    return not state.value & 1


def announce_all(places: Sequence[Place], where: Where) -> None:
    """Announce what the reader of a map will touch, unless it is in memory."""
    if is_cold(places, where):
        ahead = ReadAhead(places, where)
        for _ in places:
            ahead.advance()


def fetching(places: Sequence[Place], where: Where, fetch: Callable[[Place], T]) -> Callable[[Place], T]:
    """Return `fetch`, made to announce a place further ahead each time; `fetch` itself where all is in memory."""
    if not is_cold(places, where):
        return fetch
    ahead = ReadAhead(places, where)
    ahead.start()

    def fetch_ahead(place: Place) -> T:
        ahead.advance()
        return fetch(place)

    return fetch_ahead
