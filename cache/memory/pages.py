"""SharedPages: mapped memory that one process writes and others read, whatever way it comes to them."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np

from voxload.core.library import function
from voxload.readers.scratch import Bytes, address

_map_pages = function("map_shared_pages", "nn")


class SharedPages:
    """So many bytes of an open file, all allocated, that begin with `head`; the descriptor stays the caller's."""

    path: str
    """What people, and messages, call it."""

    def __init__(self, descriptor: int, size: int, head: bytes) -> None:
        self.usable = size
        """Bytes that may be written to; whoever hands memory over may allow less."""
        self._mapping = mmap.mmap(descriptor, size)
        self._mapping[: len(head)] = head
        self._address, self._mapped = address(self.memory), 0

    @property
    def memory(self) -> Bytes:
        """All bytes; who still has them after `close` keeps the memory, though nobody finds it any more."""
        return np.frombuffer(self._mapping, np.uint8)

    def map_to(self, stop: int) -> None:
        """Map all pages before a byte, by one call without the interpreter's lock; those that are mapped already stay.

        A program that writes to pages one after the other waits at each of them. Nobody waits for pages that are
        never written to, nor for all of them before the first.
        """
        start = self._mapped
        if stop > start:
            self._mapped = stop  # who writes there meanwhile maps what it writes
            _map_pages(self._address + start, stop - start)

    def close(self) -> None:
        """Give the mapping up."""
        with suppress(BufferError):  # somebody, such as an MPI window, still has the memory
            self._mapping.close()
