"""Line: the sample groups that share blocks, their data and their room; ints only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.errors import UsageError

Ints = npt.NDArray[np.int64]

STORAGE, MEMORY, DISK = -1, 0, 1
"""Tiers as the columns of plans name them; a block that nobody keeps comes from the storage."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that one rank may fill."""

    memory: int
    """Of its node's memory."""
    disk: int
    """Of its node's disk."""


@dataclass(frozen=True, slots=True)
class Line:
    """Ranks of equal spatial coordinates, one for each sample group, and the blocks that they share.

    Equal on all of them: what is planned from it needs no agreement.
    """

    sizes: Ints
    """Bytes of each sample's block as a tier stores it, by sample index."""
    rooms: tuple[Room, ...]
    """One for each group."""

    def __post_init__(self) -> None:
        if not self.rooms:
            raise UsageError("line", found="no group", expected="one or more")

    @property
    def groups(self) -> int:
        """Number of sample groups."""
        return len(self.rooms)


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """Which samples every group uses in one epoch."""

    epoch: int
    """Counted from 0 over the life of a loader."""
    samples: Ints
    """``(groups, steps, batch)`` sample indices; -1 where a batch is shorter, or a group has no such step."""

    @property
    def steps(self) -> int:
        """Number of steps of the longest group."""
        return int(self.samples.shape[1])
