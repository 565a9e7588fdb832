"""Plans that are random and keep the rules of placement, and the blocks that they begin with and take from where."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np

from voxload.prefetch.events import SourceKind
from voxload.prefetch.line import DISK, MEMORY, Line, Room
from voxload.prefetch.placement import RankPlan

Held = dict[int, dict[int, int]]
"""Tier of each sample, by group."""


@dataclass(frozen=True)
class Shape:
    """How much there is to plan."""

    groups: int
    steps: int
    batch: int
    samples: int
    room: int
    """Bytes of memory; the disk has half of it. A block has about 100."""
    is_even: bool = False
    """Whether all groups have all steps; one that has not passes them at once, and so is ahead of the others."""


def some_line(shape: Shape, seed: int) -> Line:
    """Return a line whose blocks have various sizes."""
    sizes = np.random.default_rng(seed).integers(50, 150, shape.samples)
    return Line(sizes=sizes, rooms=(Room(memory=shape.room, disk=shape.room // 2),) * shape.groups)


class Placing:
    """Makes plans that keep the rules of `voxload.prefetch.placement`, and are random besides."""

    def __init__(self, line: Line, shape: Shape, held: Held, seed: int) -> None:
        self.line, self.shape = line, shape
        self.random = random.Random(seed)
        self.tiers = [dict(held[group]) for group in range(shape.groups)]
        self.since = [dict.fromkeys(held[group], 0) for group in range(shape.groups)]
        self.busy: list[dict[int, int]] = [{} for _ in range(shape.groups)]  # first step at which it can be dropped
        self.planned = 0

    def epoch(self, number: int) -> list[RankPlan]:
        """Return the plans of all groups for the next epoch."""
        shape, first = self.shape, self.planned
        form = (shape.groups, shape.steps, shape.batch)
        cells = {name: np.full(form, -1) for name in ("samples", "owner", "tier", "ready", "keep")}
        drops: list[list[tuple[int, int]]] = [[] for _ in range(shape.groups)]
        empty = {group for group in range(shape.groups) if not shape.is_even and self.random.random() < 0.3}
        for at in range(shape.steps):
            for group in range(shape.groups):
                drops[group] += self._drops(group, first + at)
            for place in range(shape.batch):
                for group in range(shape.groups):
                    is_short = group in empty and at >= shape.steps - 2
                    if not is_short and (self.random.random() < 0.95 or (shape.is_even and place == 0)):
                        for name, value in self._access(group, first + at).items():
                            cells[name][group, at, place] = value
        self.planned += shape.steps
        return [
            RankPlan(
                epoch=number,
                first_step=first,
                samples=cells["samples"][group],
                owner=cells["owner"][group].astype(np.int32),
                tier=cells["tier"][group].astype(np.int8),
                ready=cells["ready"][group],
                keep=cells["keep"][group].astype(np.int8),
                drop_steps=np.array([step for step, _ in drops[group]], np.int64),
                drop_samples=np.array([sample for _, sample in drops[group]], np.int64),
            )
            for group in range(shape.groups)
        ]

    def _drops(self, group: int, step: int) -> list[tuple[int, int]]:
        held, busy = self.tiers[group], self.busy[group]
        gone = [sample for sample in held if busy.get(sample, 0) <= step and self.random.random() < 0.2]
        for sample in gone:
            del held[sample]
        return [(step, sample) for sample in gone]

    def _access(self, group: int, step: int) -> dict[str, int]:
        sample = self.random.randrange(self.shape.samples)
        owners = [owner for owner in range(self.shape.groups) if sample in self.tiers[owner]]
        owner = self.random.choice([*owners, -1])
        access = {"samples": sample, "owner": owner, "ready": step}
        if owner >= 0:
            access |= {"tier": self.tiers[owner][sample], "ready": self.since[owner][sample]}
            until = step + (1 if owner == group else 2)
            self.busy[owner][sample] = max(self.busy[owner].get(sample, 0), until)
        if sample not in self.tiers[group] and self.random.random() < 0.7:
            access["keep"] = self._keep(group, sample, step)
        return access

    def _keep(self, group: int, sample: int, step: int) -> int:
        room = self.line.rooms[group]
        size = int(self.line.sizes[sample])
        for tier, most in ((MEMORY, room.memory), (DISK, room.disk)):
            used = sum(int(self.line.sizes[held]) for held, at in self.tiers[group].items() if at == tier)
            if used + size <= most:
                self.tiers[group][sample], self.since[group][sample] = tier, step
                self.busy[group][sample] = step + 1
                return tier
        return -1


def some_held(line: Line, shape: Shape, seed: int) -> Held:
    """Return blocks that the tiers hold at the start, from nothing to all that fits."""
    chosen = random.Random(seed)
    held: Held = {}
    for group in range(shape.groups):
        held[group], used = {}, 0
        for sample in range(shape.samples):
            if chosen.random() < 0.2 and (used := used + int(line.sizes[sample])) <= shape.room:
                held[group][sample] = MEMORY
    return held


def planned_sources(group: int, plans: list[RankPlan]) -> Counter[SourceKind]:
    """Return how many blocks the plans take from each kind of place."""
    counts: Counter[SourceKind] = Counter()
    for plan in plans:
        for sample, owner, tier in zip(plan.samples.flat, plan.owner.flat, plan.tier.flat, strict=True):
            if sample >= 0:
                own = SourceKind.MEMORY if tier == MEMORY else SourceKind.DISK
                counts[SourceKind.STORAGE if owner < 0 else own if owner == group else SourceKind.PEER] += 1
    return counts
