"""Line: the sample groups that share blocks, with their sizes, rooms and the copies that their tiers hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

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


@dataclass(frozen=True, slots=True)
class Held:
    """Copies of blocks, one an element; of one sample's the first in the arrays is the primary, the others replicas."""

    group: npt.NDArray[np.int32]
    sample: Ints
    tier: npt.NDArray[np.int8]
    """MEMORY or DISK."""
    ready: Ints
    """Step from which on it is there."""
    free: Ints
    """First step at which it may be dropped."""

    @classmethod
    def found(cls, memory: Sequence[Ints], disk: Sequence[Ints]) -> Self:
        """Return what a job finds when it starts: sample indices for each group's two tiers.

        Raises
        ------
        UsageError
            A group has a sample twice.
        """
        kept = [(group, MEMORY, samples) for group, samples in enumerate(memory)]
        kept += [(group, DISK, samples) for group, samples in enumerate(disk)]
        counts = np.array([len(samples) for _, _, samples in kept], np.int64)
        group = np.repeat(np.array([group for group, _, _ in kept], np.int32), counts)
        tier = np.repeat(np.array([tier for _, tier, _ in kept], np.int8), counts)
        sample = np.concatenate([np.zeros(0, np.int64), *(np.asarray(samples, np.int64) for _, _, samples in kept)])
        pairs = np.stack([group, sample], axis=1)
        if len(np.unique(pairs, axis=0)) != len(pairs):
            raise UsageError("held", found="a block twice in one group's tiers", remedy="drop one of the two")
        zeros = np.zeros(len(sample), np.int64)
        return cls(group=group, sample=sample, tier=tier, ready=zeros, free=zeros)

    @classmethod
    def nothing(cls) -> Self:
        """Return what a job finds where no tier outlived the one before."""
        return cls.found((), ())

    @property
    def copies(self) -> int:
        """Number of copies."""
        return len(self.sample)

    def check(self, line: Line) -> None:
        """Compare with a line.

        Raises
        ------
        UsageError
            A group or sample is not the line's, or more is held than there is room.
        """
        for name, found, count in (("group", self.group, line.groups), ("sample", self.sample, len(line.sizes))):
            if found.size and not (found.min() >= 0 and found.max() < count):
                raise UsageError(f"held: {name}", found=f"{found.min()} to {found.max()}", expected=f"0 to {count - 1}")
        used = self.used(line)
        for group, room in enumerate(line.rooms):
            for name, tier, bytes_ in (("memory", MEMORY, room.memory), ("disk", DISK, room.disk)):
                if used[group, tier] > bytes_:
                    raise UsageError(
                        f"held: {name} of group {group}",
                        found=f"{used[group, tier]} bytes",
                        expected=f"at most {bytes_}",
                        remedy="drop blocks from it before the plan is made",
                    )

    def used(self, line: Line) -> Ints:
        """Return the bytes held, by group and tier."""
        used = np.zeros((line.groups, 2), np.int64)
        np.add.at(used, (self.group, self.tier), line.sizes[self.sample])
        return used
