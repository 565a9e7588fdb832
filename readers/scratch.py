"""Scratch: each thread's own reused buffers for one stored and one decoded chunk."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
"""One-dimensional bytes."""


def address(array: npt.NDArray[Any]) -> int:
    """Return where an array's first element lies; ``array.ctypes.data`` takes several times as long."""
    return int(array.__array_interface__["data"][0])


def path_of(path: str) -> Bytes:
    """Return a path as the C library takes it."""
    return np.frombuffer(os.fsencode(path) + b"\0", np.uint8)


class Scratch(threading.local):
    """Buffers that grow to the largest chunk a thread has met and are then reused.

    A fresh buffer costs as much as the copy into it: the kernel zeroes its pages. What `stored` and `decoded` hand
    out is valid until the same thread asks the same method again.
    """

    def __init__(self) -> None:
        self._stored: Bytes = np.empty(0, np.uint8)
        self._decoded: Bytes = np.empty(0, np.uint8)
        self._lent: Bytes | None = None

    def stored(self, size: int) -> Bytes:
        """Return `size` bytes for a chunk as stored."""
        if self._stored.size < size:
            self._stored = np.empty(size, np.uint8)
        return self._stored[:size]

    def room(self) -> Bytes:
        """Return all bytes that `stored` hands out without growing."""
        return self._stored

    def is_stored(self, data: Bytes) -> bool:
        """Tell whether `data` lie in what `stored` hands out: they are this thread's own to change."""
        return data.base is self._stored

    def decoded(self, size: int) -> Bytes:
        """Return `size` bytes for a chunk as decoded."""
        if self._lent is not None and size <= self._lent.size:
            return self._lent[:size]
        if self._decoded.size < size:
            self._decoded = np.empty(size, np.uint8)
        return self._decoded[:size]

    @contextmanager
    def lending(self, buffer: Bytes) -> Iterator[None]:
        """Let `decoded` hand out `buffer` in this thread meanwhile, where it is large enough."""
        self._lent = buffer
        try:
            yield
        finally:
            self._lent = None


scratch = Scratch()
"""The calling thread's buffers."""
