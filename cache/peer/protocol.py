"""Peers: the contract of what fetches blocks out of other ranks' tiers.

Rules for every implementation, which `tests/laws/peers.py` checks:

1. Never wrong bytes: the checksum that the owner stored is verified by whoever fetched the block.
2. Bounded: a call answers within `wait` and the transport's own time-out, whatever happens to the owner.
3. Nothing is written into `out` after the call, by nobody.
4. All methods may be called from many threads at once.
"""

from __future__ import annotations

import enum
from typing import Protocol

from voxload.cache.block import BlockKey
from voxload.readers.protocol import Volume


class Answer(enum.Enum):
    """What came of a fetch."""

    GOT = "got"
    """`out` is filled."""
    ABSENT = "absent"
    """The owner does not have the block, or not yet."""
    WRONG = "wrong"
    """What came does not agree with its checksum, type or shape."""
    LOST = "lost"
    """The owner does not answer, or refuses."""


class Peers(Protocol):
    """The tiers of the other ranks on a line, named by their sample groups."""

    def get_into(self, group: int, key: BlockKey, out: Volume, *, wait: float) -> Answer:
        """Fill `out` with a block out of a group's tiers; waits up to `wait` seconds for one that is to come."""
        ...

    def close(self) -> None:
        """Stop serving and release everything; no other call may run or follow."""
        ...
