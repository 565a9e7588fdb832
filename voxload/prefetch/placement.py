"""Placement: where every access of an epoch finds its block, and who keeps which; pure, and checked by `validate`.

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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from voxload.errors import InternalError
from voxload.prefetch.line import DISK, MEMORY, STORAGE, Held, Ints, Line


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


_TIER, _READY, _FREE = range(3)
"""What is known of a copy."""


def validate(placement: Placement, line: Line, held: Held) -> Held:
    """Go through an epoch step by step, as its groups would, and return what the tiers contain afterwards.

    Raises
    ------
    InternalError
        An invariant is broken; the first one is named.
    """
    walk = _Walk(placement, line, held)
    for step in range(placement.first_step, placement.first_step + placement.samples.shape[1]):
        walk.drop(step)
        walk.store(step)
        walk.fetch(step)
    return walk.held()


class _Walk:
    """The tiers of all groups on the way through one epoch."""

    def __init__(self, placement: Placement, line: Line, held: Held) -> None:
        self._plan = placement
        self._sizes: list[int] = line.sizes.tolist()
        self._left = [[room.memory, room.disk] for room in line.rooms]
        self._copies: list[dict[int, list[int]]] = [{} for _ in line.rooms]
        self._sources: dict[tuple[int, int], int] = {}
        columns = (held.group, held.sample, held.tier, held.ready, held.free)
        for group, sample, *copy in zip(*(column.tolist() for column in columns), strict=True):
            self._enter(group, sample, copy, placement.first_step)
        self._check_shapes(len(line.rooms))
        self._drops = self._read_drops()

    def _fail(self, step: int, group: int, what: str) -> NoReturn:
        raise InternalError(f"placement of epoch {self._plan.epoch}: step {step}, group {group}: {what}")

    def _check_shapes(self, groups: int) -> None:
        plan, first = self._plan, self._plan.first_step
        shape = plan.samples.shape
        shapes = {each.shape for each in (plan.owner, plan.tier, plan.ready, plan.keep)}
        if shapes != {shape} or len(shape) != 3 or shape[0] != groups:
            self._fail(first, -1, f"arrays of shapes {shape} and {shapes} for {groups} groups")
        bounds = plan.drop_bounds
        is_whole = len(bounds) == groups + 1 and bounds[0] == 0 and bounds[-1] == len(plan.drop_steps)
        if not is_whole or (np.diff(bounds) < 0).any() or len(plan.drop_steps) != len(plan.drop_samples):
            self._fail(first, -1, "the bounds of drops do not fit")

    def _read_drops(self) -> dict[int, list[tuple[int, int]]]:
        """Return (group, sample) by step."""
        found: dict[int, list[tuple[int, int]]] = {}
        first, steps = self._plan.first_step, self._plan.samples.shape[1]
        for group in range(len(self._copies)):
            plan = self._plan.of(group)
            if (np.diff(plan.drop_steps) < 0).any():
                self._fail(first, group, "drops are not in the order of steps")
            for step, sample in zip(plan.drop_steps.tolist(), plan.drop_samples.tolist(), strict=True):
                if not first <= step < first + steps:
                    self._fail(step, group, "a drop is not in the epoch")
                found.setdefault(step, []).append((group, sample))
        return found

    def _enter(self, group: int, sample: int, copy: list[int], step: int) -> None:
        if sample in self._copies[group]:
            self._fail(step, group, f"sample {sample} is kept twice")
        if copy[_TIER] not in (MEMORY, DISK):
            self._fail(step, group, f"sample {sample} is kept in tier {copy[_TIER]}")
        self._copies[group][sample] = copy
        self._left[group][copy[_TIER]] -= self._sizes[sample]
        if self._left[group][copy[_TIER]] < 0:
            self._fail(step, group, f"tier {copy[_TIER]} has no room for sample {sample}")

    def drop(self, step: int) -> None:
        """Drop what is dropped before a step's stores."""
        for group, sample in self._drops.get(step, ()):
            copy = self._copies[group].pop(sample, None)
            if copy is None:
                self._fail(step, group, f"sample {sample} is dropped and not there")
            if copy[_FREE] > step:
                self._fail(step, group, f"sample {sample} is dropped before step {copy[_FREE]}, where it may be in use")
            self._left[group][copy[_TIER]] += self._sizes[sample]

    def _accesses(self, step: int) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Yield (group, sample, owner, tier, ready, keep) of a step's accesses."""
        plan, at = self._plan, step - self._plan.first_step
        columns = (plan.samples, plan.owner, plan.tier, plan.ready, plan.keep)
        for group, rows in enumerate(zip(*(column[:, at].tolist() for column in columns), strict=True)):
            for sample, owner, tier, ready, keep in zip(*rows, strict=True):
                yield group, sample, owner, tier, ready, keep

    def store(self, step: int) -> None:
        """Store what is kept of a step."""
        self._sources.clear()
        for group, sample, owner, _, ready, keep in self._accesses(step):
            if keep == -1:
                continue
            if sample < 0:
                self._fail(step, group, "a place without sample is kept")
            self._enter(group, sample, [keep, step, step + 1], step)
            self._sources[group, sample] = owner if ready == step else -1

    def fetch(self, step: int) -> None:
        """Fetch what a step uses."""
        for group, sample, owner, tier, ready, keep in self._accesses(step):
            if owner == -1:
                if tier != STORAGE:
                    self._fail(step, group, f"sample {sample} comes from tier {tier} of no group")
                continue
            copy = self._copies[owner].get(sample) if 0 <= owner < len(self._copies) and sample >= 0 else None
            if copy is None:
                self._fail(step, group, f"sample {sample} is not at group {owner}")
            if owner == group and keep != -1:
                self._fail(step, group, f"sample {sample} is stored from this group's own tier")
            if copy[:_FREE] != [tier, ready] or ready > step:
                found = f"in tier {copy[_TIER]} from step {copy[_READY]}"
                self._fail(step, group, f"sample {sample} is {found} at group {owner}, not in {tier} from {ready}")
            copy[_FREE] = max(copy[_FREE], step + (1 if owner == group else 2))
            self._follow(step, group, sample, owner)

    def _follow(self, step: int, group: int, sample: int, owner: int) -> None:
        """Go from one to the next of those that pass a block on within a step: somebody has it from elsewhere."""
        passed = 0
        while owner != -1:
            owner = self._sources.get((owner, sample), -1)
            passed += 1
            if passed > len(self._copies):
                self._fail(step, group, f"sample {sample} goes in a circle")

    def held(self) -> Held:
        """Return what the tiers contain, by group, then sample."""
        rows = [(g, sample, *copy) for g, copies in enumerate(self._copies) for sample, copy in sorted(copies.items())]
        table = np.array(rows, np.int64).reshape(-1, 5)
        return Held(
            group=table[:, 0].astype(np.int32),
            sample=table[:, 1].copy(),
            tier=table[:, 2].astype(np.int8),
            ready=table[:, 3].copy(),
            free=table[:, 4].copy(),
        )
