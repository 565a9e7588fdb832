"""Neighbours: blocks that another user's process has of a file that this user may read, too.

Rules of this file:

1. The kernel decides who may have a block: who wants one opens its file, with their own rights, and shows the
   descriptor to the process of root's, which compares the file with that of which the block is.
2. Blocks that are made of several files are nobody else's: rights to all of them would have to be shown.
3. Nobody waits for a neighbour longer than `PATIENCE`; the storage has it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import BlockKey
from voxload.readers.protocol import Volume
from voxload.serve.protocol.bulk import lent, taken
from voxload.serve.tenancy.orders import Given, Has, Lost, Order, Wants

PATIENCE = 2.0
"""Seconds for a block of a neighbour's."""
_LARGEST = 2**30
"""Bytes of a block that is asked for: it is in memory twice for a moment."""

Say = Callable[[Order, Sequence[int]], None]


class Neighbours:
    """The tenant's side of it; see `Elsewhere`. Safe to use from many threads at once.

    Parameters
    ----------
    say
        Tells the process of root's something; may be called by many threads.
    """

    wants_files = True

    def __init__(self, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._asked: dict[int, _Asked] = {}
        self._numbers = 0
        self._told: dict[bytes, str] = {}

    def fetch(self, line: bytes, key: BlockKey, path: str | None, out: Volume) -> bool:  # noqa: ARG002
        """See Elsewhere."""
        if path is None or out.nbytes > _LARGEST or not out.flags.c_contiguous:
            return False
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        asked = _Asked(out.nbytes)
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._asked[number] = asked
        try:
            self._say(Wants(number, key.digest.hex(), out.nbytes), [file])
            asked.event.wait(PATIENCE)
        finally:
            os.close(file)
            with self._lock:
                del self._asked[number]
        if asked.data is None:
            return False
        np.copyto(out.reshape(-1).view(np.uint8), np.frombuffer(asked.data, np.uint8))
        return True

    def has(self, key: BlockKey, path: str) -> None:
        """See Elsewhere."""
        with suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                self._told[key.digest] = path
                self._say(Has(key.digest.hex()), [file])
            finally:
                os.close(file)

    def lost(self, key: BlockKey) -> None:
        """See Elsewhere."""
        if self._told.pop(key.digest, None) is not None:
            self._say(Lost(key.digest.hex()), [])

    def given(self, number: int, descriptors: Sequence[int]) -> None:
        """Take in the answer to what was asked; with no descriptor where nobody has it."""
        with self._lock:
            asked = self._asked.get(number)
        if asked is not None:
            if len(descriptors) == 1:
                with suppress(OSError):
                    data = taken("block", descriptors[0], most=asked.nbytes)
                    asked.data = data if len(data) == asked.nbytes else None
            asked.event.set()


class _Asked:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.event = threading.Event()
        self.data: bytes | None = None


def copied(tier: MemoryTier, digest: bytes, nbytes: int) -> int | None:
    """Return the descriptor of new memory with a block of a tier's; None where it does not have it so, undamaged."""
    data = tier.content(digest)
    return None if data is None or len(data) != nbytes else lent("block", data)


def answer(number: int, descriptor: int | None, say: Say) -> None:
    """Give a block to who asked for it, or say that it is not there; the descriptor is closed."""
    try:
        say(Given(number), [] if descriptor is None else [descriptor])
    finally:
        if descriptor is not None:
            os.close(descriptor)
