"""KnownReads: reads that were made before, told by their boxes and by how their arrays lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from voxload.readers.requests import Request
from voxload.readers.scratch import address

T = TypeVar("T")
Key = Any
"""What tells a read from others, wherever its first array lies."""

_MOST = 2**12
"""Reads that are remembered of a volume: its blocks, not crops at random, of which none comes twice."""


def key_of(requests: Sequence[Request], base: int) -> Key:
    """Return a read's key; `base` is the address of its first array."""
    if len(requests) == 1:
        out, box = requests[0].out, requests[0].box
        return box.start, box.stop, out.shape, out.strides, out.dtype
    return tuple(
        [
            (one.box.start, one.box.stop, one.out.shape, one.out.strides, one.out.dtype, address(one.out) - base)
            for one in requests
        ]
    )


def base_of(requests: Sequence[Request]) -> int | None:
    """Return where the first array begins; None where one of them is no array that may be written."""
    for one in requests:
        out: object = one.out
        if not (isinstance(out, np.ndarray) and out.flags.writeable):
            return None
    return address(requests[0].out) if requests else None


class KnownReads(Generic[T]):
    """What was learnt of reads; safe to use from many threads at once: each step is one of a dictionary's own."""

    def __init__(self) -> None:
        self._known: dict[Key, T] = {}
        self._refused: set[Key] = set()
        self._seen: set[Key] = set()

    def find(self, key: Key) -> T | None:
        """Return what is known of a read."""
        return self._known.get(key)

    def comes_again(self, key: Key) -> bool:
        """Tell whether a read was made before this time: of one that is made once, to plan it again is in vain."""
        if key in self._seen:
            return True
        if len(self._seen) >= _MOST:
            self._seen.clear()
        self._seen.add(key)
        return False

    def add(self, key: Key, known: T) -> None:
        """Remember a read, unless it was dropped before."""
        if key in self._refused:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[key] = known

    def drop(self, key: Key) -> None:
        """Forget a read that failed in the short way: tried again, it would be begun twice each time."""
        self._known.pop(key, None)
        if len(self._refused) < _MOST:
            self._refused.add(key)
