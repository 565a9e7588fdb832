"""BlockBook: the blocks that clients of a service have named, each once, whoever named it; pure.

A number is given to another block once nobody names its block any more and nothing is kept of that: a service that
runs for months sees more blocks than it could remember.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from voxload.errors import UsageError
from voxload.prefetch.line import Ints
from voxload.serve.protocol.blocktable import identity


class BlockBook:
    """Not safe to use from several threads at once.

    Parameters
    ----------
    most
        Blocks that are remembered at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[bytes, int] = {}
        self._lines: list[bytes] = []
        self._named: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._numbers)

    def line(self, number: int) -> bytes:
        """Return what a client said of a block."""
        return self._lines[number]

    def name(self, lines: Sequence[bytes]) -> tuple[Ints, Ints]:
        """Let a client name blocks; return their numbers, and the places in `lines` of those that are new.

        Raises UsageError where there are too many.
        """
        if len(self._numbers) + len(lines) > self._most:
            found = f"{len(self._numbers)} blocks, and {len(lines)} more"
            raise UsageError("service", found=found, expected=f"at most {self._most}", remedy="end a job first")
        numbers, fresh = [], []
        for place, line in enumerate(lines):
            known = identity(line)
            number = self._numbers.get(known)
            if number is None:
                number = self._numbers[known] = self._enter(line)
                fresh.append(place)
            self._named[number] += 1
            numbers.append(number)
        return np.array(numbers, np.int64), np.array(fresh, np.int64)

    def hold(self, numbers: Iterable[int]) -> None:
        """Let somebody else name blocks that are named."""
        for number in numbers:
            self._named[number] += 1

    def leave(self, numbers: Iterable[int]) -> list[int]:
        """Let a client name blocks no more; return those that nobody names now."""
        found = []
        for number in numbers:
            self._named[number] -= 1
            if not self._named[number]:
                found.append(number)
        return found

    def is_named(self, number: int) -> bool:
        """Tell whether anybody names a block."""
        return self._named[number] > 0

    def forget(self, number: int) -> None:
        """Forget a block that nobody names and of which nothing is kept; nothing happens where it is forgotten."""
        if self._named[number] == 0 and self._lines[number]:
            del self._numbers[identity(self._lines[number])]
            self._lines[number] = b""
            self._free.append(number)

    def _enter(self, line: bytes) -> int:
        if self._free:
            number = self._free.pop()
            self._lines[number] = line
            return number
        self._lines.append(line)
        self._named.append(0)
        return len(self._lines) - 1
