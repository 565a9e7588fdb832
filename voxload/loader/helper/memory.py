"""SharedSlots: memory of slots that two processes map, found again by its address.

Rules of this file:

1. Memory is of a file without a name: it needs no place under /dev/shm, and goes with the last process that maps it.
2. A slot's number is told to the other process once, with the file, and never used again for another one.
"""

from __future__ import annotations

import itertools
import mmap
import os
import queue
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.errors import StorageError
from voxload.loader.reading.pinning import PAGE, PageLock
from voxload.readers.scratch import address
from voxload.units import format_bytes


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Memory of one slot."""

    number: int
    """No other slot's."""
    file: int
    """Descriptor of what is mapped."""
    nbytes: int
    """Whole pages."""


class SharedSlots:
    """The slots of one loader; safe to use from many threads."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._found: dict[int, SharedMemory] = {}
        self.gone: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Numbers of slots that are no more."""

    def memory(self, nbytes: int, lock: PageLock | None = None) -> npt.NDArray[np.uint8]:
        """Return bytes as `pinning.host_memory` does, that another process can map.

        Raises
        ------
        StorageError
            When there is no memory, or it cannot be locked.
        """
        size = -(-max(nbytes, 1) // PAGE) * PAGE
        try:
            file = os.memfd_create("voxload-slot", os.MFD_CLOEXEC)
            os.ftruncate(file, size)
            whole = np.frombuffer(mmap.mmap(file, size), np.uint8)
        except OSError as error:
            raise StorageError(
                f"{format_bytes(size)} of shared memory",
                found=str(error),
                remedy='lower staging, or leave out readers="process"',
            ) from error
        where = address(whole)
        if lock is not None:
            lock.lock(where, size)
            weakref.finalize(whole, lock.unlock, where).atexit = False
        self._found[where] = SharedMemory(next(self._numbers), file, size)
        weakref.finalize(whole, _forget, self._found, self.gone, where).atexit = False
        return whole[: max(nbytes, 1)]

    def of(self, array: npt.NDArray[Any]) -> SharedMemory | None:
        """Return the memory that an array begins; None where it is no slot's."""
        return self._found.get(address(array))


def mapped(file: int, nbytes: int) -> npt.NDArray[np.uint8]:
    """Return the memory that another process shares; the descriptor is closed."""
    try:
        return np.frombuffer(mmap.mmap(file, nbytes), np.uint8)
    finally:
        os.close(file)


def _forget(found: dict[int, SharedMemory], gone: queue.SimpleQueue[int], where: int) -> None:
    """Close a slot's file; takes no lock, for it is a finaliser."""
    memory = found.pop(where)
    os.close(memory.file)
    gone.put(memory.number)
