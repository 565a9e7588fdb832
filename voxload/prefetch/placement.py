"""Placement: where every access of an epoch finds its block, and who keeps which; pure.

Steps are counted over the life of a loader: the first step of an epoch is one behind the last of the epoch before.
A group *delivers* a step when it hands the step's batch to its consumer. Clocks of groups agree to within a step,
for training synchronises them; where they do not, a block is not where it should be and comes from the storage.

1. What group g keeps of step t it stores when it has delivered step t - 1, so that its room is wanted no earlier than
   it must be. From then on (`ready` = t) other groups may fetch it, for their steps t and later.
2. What it drops at step s it drops at that time too, before it stores. A block that another group uses at step u is
   dropped at u + 2 or later: then that group has delivered u. One that the owner itself uses, at u + 1 or later.
3. In each tier of each group, what is stored and not dropped never exceeds the room.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.prefetch.line import MEMORY, Ints


@dataclass(frozen=True, slots=True)
class RankPlan:
    """What one rank does in one epoch. All access arrays have the shape ``(steps, batch)``."""

    epoch: int
    """Which epoch."""
    first_step: int
    """Number of its first step."""
    samples: Ints
    """Sample of each access; -1 where a batch is shorter."""
    owner: npt.NDArray[np.int32]
    """Group whose tier has the block; -1: the storage."""
    tier: npt.NDArray[np.int8]
    """Tier there: MEMORY or DISK; STORAGE where the owner is -1."""
    ready: Ints
    """Step from which on the owner has it; at most the access's own."""
    keep: npt.NDArray[np.int8]
    """Tier in which this rank then stores the block; -1: in none."""
    drop_steps: Ints
    """Steps at which this rank drops a block of its own, ascending."""
    drop_samples: Ints
    """Which sample's."""


@dataclass(frozen=True, slots=True)
class SourceBytes:
    """Bytes that accesses take, by where they come from."""

    storage: int
    memory: int
    """The accessing group's own."""
    disk: int
    """The accessing group's own."""
    peer_memory: int
    peer_disk: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The plans of all groups for one epoch. All access arrays have the shape ``(groups, steps, batch)``."""

    epoch: int
    """Which epoch."""
    first_step: int
    """Number of its first step."""
    samples: Ints
    owner: npt.NDArray[np.int32]
    tier: npt.NDArray[np.int8]
    ready: Ints
    keep: npt.NDArray[np.int8]
    drop_bounds: Ints
    """``(groups + 1,)``: where each group's drops begin in the next two."""
    drop_steps: Ints
    drop_samples: Ints

    def of(self, group: int) -> RankPlan:
        """Return one group's part."""
        drops = slice(int(self.drop_bounds[group]), int(self.drop_bounds[group + 1]))
        return RankPlan(
            epoch=self.epoch,
            first_step=self.first_step,
            samples=self.samples[group],
            owner=self.owner[group],
            tier=self.tier[group],
            ready=self.ready[group],
            keep=self.keep[group],
            drop_steps=self.drop_steps[drops],
            drop_samples=self.drop_samples[drops],
        )

    def storage_bytes(self, sizes: Ints) -> int:
        """Return the bytes that all groups together read from the storage; `sizes` by sample index."""
        return self.bytes_by_source(sizes).storage

    def bytes_by_source(self, sizes: Ints) -> SourceBytes:
        """Return the bytes of all accesses by where they come from; `sizes` by sample index."""
        is_used = self.samples >= 0
        taken = np.where(is_used, sizes[np.where(is_used, self.samples, 0)], 0)
        is_own = self.owner == np.arange(len(self.owner), dtype=self.owner.dtype)[:, None, None]
        is_kept, is_memory = self.owner >= 0, self.tier == MEMORY
        return SourceBytes(
            storage=int(taken[~is_kept].sum()),
            memory=int(taken[is_own & is_memory].sum()),
            disk=int(taken[is_own & ~is_memory].sum()),
            peer_memory=int(taken[is_kept & ~is_own & is_memory].sum()),
            peer_disk=int(taken[is_kept & ~is_own & ~is_memory].sum()),
        )
