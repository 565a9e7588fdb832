"""BufferPool: reused memory that blocks are sent out of, or arrive in."""

from __future__ import annotations

import threading
import weakref

import numpy as np

from voxload.errors import UsageError
from voxload.readers.scratch import Bytes

_SMALL = 2**16
"""Bytes that anything may take; more than this, no buffer of over twice what is asked for."""


class BufferPool:
    """Buffers that come back by themselves once nothing refers to them; safe to use from many threads at once.

    Who sends a block cannot tell when the network has done with its bytes, but the network's reference to them can.
    Reused buffers have their pages already: a fresh one costs a page fault for every 4 KiB.

    Parameters
    ----------
    limit
        Bytes, hard: lent ones and those that wait to be lent again.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise UsageError("bytes to lend from", found=str(limit), expected="1 or more")
        self.limit = limit
        # A buffer may come back while this very thread is in here: then the lock is entered twice.
        self._back = threading.Condition(threading.RLock())
        self._free: list[Bytes] = []
        self._lent = 0

    def take(self, nbytes: int, *, patience: float) -> Bytes | None:
        """Return a buffer; None where there is no room in `patience` seconds, or more is asked for than the limit.

        It comes back when the last reference to the returned array and to buffers exported by it is gone; views of the
        array do not count.
        """
        if nbytes > self.limit:
            return None
        with self._back:
            if not self._back.wait_for(lambda: self._lent + nbytes <= self.limit, patience):
                return None
            whole = self._pick(nbytes)
            self._lent += whole.nbytes
        lent = whole[:nbytes]
        weakref.finalize(lent, self._put_back, whole).atexit = False
        return lent

    def _pick(self, nbytes: int) -> Bytes:
        largest = min(max(2 * nbytes, _SMALL), self.limit - self._lent)
        fits = [place for place, buffer in enumerate(self._free) if nbytes <= buffer.nbytes <= largest]
        if fits:
            return self._free.pop(min(fits, key=lambda place: self._free[place].nbytes))
        while self._free and self._lent + sum(buffer.nbytes for buffer in self._free) + nbytes > self.limit:
            self._free.pop()
        return np.empty(nbytes, np.uint8)

    def _put_back(self, whole: Bytes) -> None:
        with self._back:
            self._lent -= whole.nbytes
            self._free.append(whole)
            self._back.notify_all()
