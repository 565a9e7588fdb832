"""Elsewhere: others that may have a block, or read it for this service; a contract.

What comes from there is as if it had been read: whoever gives it sees to it that who asks may have it.
"""

from __future__ import annotations

from typing import Protocol

from voxload.cache.protocol import BlockKey
from voxload.readers.protocol import Volume


class Elsewhere(Protocol):
    """Blocks of others; safe to use from many threads at once."""

    @property
    def wants_files(self) -> bool:
        """Whether it needs the path of the one file that a block lies in."""
        ...

    def fetch(self, line: bytes, key: BlockKey, path: str | None, out: Volume) -> bool:
        """Fill `out` with a block; False, with `out` undefined, where nobody has it, or gives it in time.

        `line` says which it is, as a client did; `path` is that of its file, where that is asked for.
        """
        ...

    def has(self, key: BlockKey, path: str) -> None:
        """Say that a block of a file is in memory here."""
        ...

    def lost(self, key: BlockKey) -> None:
        """Say that a block is not in memory here any more; nothing happens where that was not said."""
        ...
