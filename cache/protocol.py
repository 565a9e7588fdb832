"""Contracts of all that keeps or fetches blocks near a rank, with the key that tells a block from all others.

Rules for every Tier, which `tests/laws/tier.py` checks:

1. A tier never returns wrong bytes. What it stores carries a CRC-32C of key, type, shape and bytes, which is compared
   whenever it is read. What is damaged is dropped, and the answer is no; who asks for another type or shape than was
   stored is answered no as well, and the block stays.
2. A tier never fails a run. Full, it answers no; broken or vanished, it answers no and warns (RuntimeWarning) once of
   each kind of trouble. A tier that cannot be made as it was asked for raises an error then.
3. The capacity is hard: stored bytes, headers and tables included, never exceed it, not for a moment.
4. All methods may be called from many threads at once. `out` and `block` may be strided, and are not kept after the
   call.
5. A block is there whole or not at all, whoever is killed and whenever.

Rules for all Peers, which `tests/laws/peers.py` checks:

1. Never wrong bytes: the checksum that the owner stored is verified by whoever fetched the block.
2. Bounded: a call answers within `wait` and the transport's own time-out, whatever happens to the owner.
3. Nothing is written into `out` after the call, by nobody.
4. All methods may be called from many threads at once.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

from voxload.geometry import Boundary, Box
from voxload.readers.protocol import Volume


@dataclass(frozen=True)
class BlockKey:
    """Which voxels a block holds; equal keys mean equal bytes."""

    data: str
    """Identity of the data: changes whenever what is stored for any sample changes."""
    sample: str
    """Sample id."""
    field: str
    """Name of the volume in the sample."""
    box: Box
    """In global voxel indices, halo included."""
    boundary: Boundary
    """What lies outside the sample, where the box reaches there."""

    @cached_property
    def digest(self) -> bytes:
        """Sixteen bytes that stand for the key in tables and names; collisions are beyond reach (BLAKE2b, RFC 7693)."""
        parts = (self.data, self.sample, self.field, str(self.box), str(self.boundary))
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            text = part.encode(errors="surrogateescape")  # of files whose names are no UTF-8, too
            digest.update(len(text).to_bytes(8, "little") + text)
        return digest.digest()


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
