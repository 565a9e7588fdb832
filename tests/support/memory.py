"""Memory of a process of tests: what its tests dropped goes when it has grown by so much, and back to the system.

Modules of networks and errors with their frames are circles of references, which hold what they computed until a full
collection; one of several files kept 400 MiB. A collection after each test, or each file, takes more than all else.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
from pathlib import Path

LIMIT = 2**30
"""Bytes that a process of tests may hold at most, so that one for each core and one more fit on small machines."""
_GROWTH = 2**26
"""Bytes of growth after which there is a full collection."""
ARENA_MAX = "MALLOC_ARENA_MAX"
"""Environment variable by which a process has so many of glibc's arenas from its start."""
_ARENA_MAX = -8
"""The same for this process alone (malloc.h): those that tests start have as many as a user's."""
_STATM = Path("/proc/self/statm")


def private_bytes() -> int:
    """Return the bytes of memory that are this process's own: not those of files that it maps, libraries for one."""
    _, resident, shared, *_ = _STATM.read_bytes().split()
    return (int(resident) - int(shared)) * mmap.PAGESIZE


class Trimmer:
    """Gives memory back; used by one thread."""

    def __init__(self) -> None:
        self._least = private_bytes()
        self.most = 0
        """Most bytes that were held after a test."""
        self._libc = ctypes.CDLL(None)
        # Each thread of a test has an arena of its own otherwise, which stays while anything in it is used.
        self._libc.mallopt(_ARENA_MAX, 1)

    def trim(self) -> None:
        """Collect garbage and give back what is free, if the process has grown by `_GROWTH` since it last did."""
        taken = private_bytes()
        if taken > self._least + _GROWTH:
            gc.collect()
            self._libc.malloc_trim(0)
            taken = self._least = private_bytes()
        self._least = min(self._least, taken)
        self.most = max(self.most, taken)
