"""Tier: the contract of every place that keeps blocks near a rank.

Rules for every implementation, which `tests/laws/tier.py` checks:

1. A tier never returns wrong bytes. What it stores carries a CRC-32C of key, type, shape and bytes, which is compared
   whenever it is read. What is damaged is dropped, and the answer is no; who asks for another type or shape than was
   stored is answered no as well, and the block stays.
2. A tier never fails a run. Full, it answers no; broken or vanished, it answers no and warns (RuntimeWarning) once of
   each kind of trouble. A tier that cannot be made as it was asked for raises an error then.
3. The capacity is hard: stored bytes, headers and tables included, never exceed it, not for a moment.
4. All methods may be called from many threads at once. `out` and `block` may be strided, and are not kept after the
   call.
5. A block is there whole or not at all, whoever is killed and whenever.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from voxload.cache.block import BlockKey
from voxload.readers.protocol import Volume


@runtime_checkable
class Tier(Protocol):
    """A place that keeps blocks."""

    @property
    def capacity(self) -> int:
        """Most bytes that it stores."""
        ...

    @property
    def used(self) -> int:
        """Bytes that it stores now."""
        ...

    def get_into(self, key: BlockKey, out: Volume) -> bool:
        """Fill `out` with a block of its very type and shape; False, with `out` undefined, where it is not there."""
        ...

    def put(self, key: BlockKey, block: Volume) -> bool:
        """Store a block; False where there is no room or storing failed. True at once where it is there already."""
        ...

    def drop(self, key: BlockKey) -> None:
        """Forget a block; nothing happens where it is not there."""
        ...

    def holds(self, key: BlockKey) -> bool:
        """Tell whether a block is there, without reading it: `get_into` may still find it damaged."""
        ...

    def close(self) -> None:
        """Release everything; blocks that outlive the job stay. No other call may run or follow."""
        ...
