"""Elsewhere: other places of the node that may have a block, in memory of other users' services; a contract.

What comes from there is as if it had been read: whoever gives it has made sure that who asks may open its file.
"""

from __future__ import annotations

from typing import Protocol

from voxload.cache.protocol import BlockKey
from voxload.readers.protocol import Volume


class Elsewhere(Protocol):
    """Blocks of others that lie each in one file; safe to use from many threads at once."""

    def fetch(self, key: BlockKey, path: str, out: Volume) -> bool:
        """Fill `out` with a block of a file; False, with `out` undefined, where nobody has it, or gives it in time."""
        ...

    def has(self, key: BlockKey, path: str) -> None:
        """Say that a block of a file is in memory here."""
        ...

    def lost(self, key: BlockKey) -> None:
        """Say that a block is not in memory here any more; nothing happens where that was not said."""
        ...
