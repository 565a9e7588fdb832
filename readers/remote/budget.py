"""ByteBudget: how many bytes of remote objects a process holds undecoded."""

from __future__ import annotations

import os
import threading
from collections import deque

from voxload.errors import UsageError

BYTES_IN_FLIGHT = 2**28
"""For all reads of a process: twice what a connection of 10 Gbit/s carries in 0.1 s, so that it never idles while
chunks are decoded."""


class ByteBudget:
    """Bytes that may be reserved before they are asked for; safe to use from many threads at once.

    Whoever waits is served in the order of coming. More than the whole budget is granted to one who is alone: a chunk
    has to be held in one piece, however large it is.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise UsageError("bytes in flight", found=str(limit), expected="1 or more")
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self.held = 0

    def reserve(self, size: int) -> None:
        """Reserve bytes; waits until others have released enough."""
        turn = object()
        with self._changed:
            self._waiting.append(turn)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is turn and self._fits(size))
                self.held += size
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()

    def try_reserve(self, size: int) -> bool:
        """Reserve bytes if that needs no waiting; tell whether it was done."""
        with self._changed:
            if self._waiting or not self._fits(size):
                return False
            self.held += size
            return True

    def release(self, size: int) -> None:
        """Give bytes back."""
        with self._changed:
            self.held -= size
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self.held or self.held + size <= self._limit


_budget = ByteBudget(BYTES_IN_FLIGHT)


def budget() -> ByteBudget:
    """Return the process's budget."""
    return _budget


def _forget() -> None:
    """Start with nothing held in a forked child: the reads that held it are not there."""
    global _budget  # noqa: PLW0603 - the bytes belong to the process
    _budget = ByteBudget(BYTES_IN_FLIGHT)


os.register_at_fork(after_in_child=_forget)
