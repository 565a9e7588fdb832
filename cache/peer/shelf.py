"""Shelf: the tiers that a rank lends from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from voxload.cache.protocol import Answer, BlockKey
from voxload.readers.protocol import Volume

_LOOK = 0.05
"""Seconds between looks without a bell: another rank may store a block in a disk tier that both share."""


class Lender(Protocol):
    """What a block can be had from: the reading half of a `Tier`."""

    def holds(self, key: BlockKey) -> bool:
        """Tell whether a block is there, without reading it."""
        ...

    def get_into(self, key: BlockKey, out: Volume) -> bool:
        """Fill `out` with a block of its very type and shape; False, with `out` undefined, where that cannot be."""
        ...


class Shelf:
    """The tiers that a rank lends from, and a bell for those who wait; all methods from many threads at once.

    Parameters
    ----------
    tiers
        Asked in this order, so the fastest first. They are not closed with the shelf.
    """

    def __init__(self, tiers: Sequence[Lender]) -> None:
        self._tiers = tuple(tiers)
        self._changed = threading.Condition()
        self._rung = 0
        self._is_closed = False

    def wait_for(self, key: BlockKey, seconds: float, *, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Wait until a tier holds a block, at most so long and while it is wanted; tell whether one does."""
        deadline = time.monotonic() + seconds
        while True:
            with self._changed:
                seen = self._rung
                if self._is_closed:
                    return False
            # Not under the lock: a tier may have to ask a file system.
            if any(tier.holds(key) for tier in self._tiers):
                return True
            with self._changed:
                left = deadline - time.monotonic()
                if left <= 0 or not is_wanted():
                    return False
                if self._rung == seen and not self._is_closed:
                    self._changed.wait(min(left, _LOOK))

    def get_into(self, key: BlockKey, out: Volume) -> Answer:
        """Fill `out` from the first tier that can; WRONG where a tier holds the block and none can give it as asked.

        A block that is dropped at this very moment may be WRONG too: tiers do not tell why they say no.
        """
        is_held = False
        for tier in self._tiers:
            if tier.holds(key):
                is_held = True
                if tier.get_into(key, out):
                    return Answer.GOT
        return Answer.WRONG if is_held else Answer.ABSENT

    def notify(self) -> None:
        """Say that a block was stored: whoever waits looks again."""
        with self._changed:
            self._rung += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Send away everyone who waits, now and later."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
