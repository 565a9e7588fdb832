"""PlacementBuilder: a placement in the making, for policies that decide access by access."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from voxload.prefetch.line import DISK, MEMORY, STORAGE, EpochOrder, Held, Ints, Line
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.protocol import State
from voxload.prefetch.policies.uses import order_of


class Access(NamedTuple):
    """One use of a sample."""

    step: int
    group: int
    place: int
    """In the batch."""
    sample: int


@dataclass(slots=True)
class Copy:
    """A kept block."""

    tier: int
    ready: int
    free: int
    """First step at which it may be dropped."""


class PlacementBuilder:
    """What the tiers of a line contain, step by step, and what that makes of one epoch's accesses."""

    def __init__(self, state: State, epoch: EpochOrder) -> None:
        line, held = state.line, state.held
        self.state = state
        self.epoch = epoch
        self.order = order_of(epoch, len(line.sizes), line.groups)
        self.copies: list[dict[int, Copy]] = [{} for _ in line.rooms]
        """Of each group, by sample, in the order in which they were stored or moved to the end."""
        self._owners: dict[int, list[int]] = {}
        self._sizes: list[int] = line.sizes.tolist()
        self._left = [[room.memory, room.disk] for room in line.rooms]
        self._drops: list[tuple[int, int, int]] = []
        self._owner = np.full(self.order.shape, -1, np.int32)
        self._tier = np.full(self.order.shape, STORAGE, np.int8)
        self._ready = np.zeros(self.order.shape, np.int64)
        self._keep = np.full(self.order.shape, -1, np.int8)
        columns = (held.group, held.sample, held.tier, held.ready, held.free)
        for group, sample, tier, ready, free in zip(*(column.tolist() for column in columns), strict=True):
            self._enter(group, sample, Copy(tier, ready, free))

    def accesses(self) -> Iterator[Access]:
        """Yield all accesses, step by step and in each step by group."""
        first = self.state.step
        for at, step in enumerate(self.order.transpose(1, 0, 2).tolist()):
            for group, batch in enumerate(step):
                for place, sample in enumerate(batch):
                    if sample >= 0:
                        yield Access(first + at, group, place, sample)

    def nearest(self, access: Access) -> int:
        """Return the group whose copy an access is best served from: its own, then memory, then the oldest; or -1."""
        if access.sample in self.copies[access.group]:
            return access.group
        owners = self._owners.get(access.sample, ())
        return min(owners, key=lambda group: self._distance(group, access.sample), default=-1)

    def _distance(self, group: int, sample: int) -> tuple[int, int, int]:
        copy = self.copies[group][sample]
        return copy.tier, copy.ready, group

    def take(self, access: Access, owner: int) -> None:
        """Let an access be served from a group's copy."""
        copy, at = self.copies[owner][access.sample], self._at(access)
        self._owner[at], self._tier[at], self._ready[at] = owner, copy.tier, copy.ready
        copy.free = max(copy.free, access.step + (1 if owner == access.group else 2))

    def fits(self, group: int, sample: int) -> int:
        """Return the first tier of a group that has room for a block, or -1."""
        for tier in (MEMORY, DISK):
            if self._sizes[sample] <= self._left[group][tier]:
                return tier
        return -1

    def left(self, group: int, tier: int) -> int:
        """Return the bytes that a tier of a group can still take."""
        return self._left[group][tier]

    def size(self, sample: int) -> int:
        """Return the bytes of a block."""
        return self._sizes[sample]

    def store(self, access: Access, tier: int) -> None:
        """Let an access's block be kept by who uses it; there must be room."""
        self._keep[self._at(access)] = tier
        self._enter(access.group, access.sample, Copy(tier, access.step, access.step + 1))

    def _enter(self, group: int, sample: int, copy: Copy) -> None:
        self.copies[group][sample] = copy
        self._owners.setdefault(sample, []).append(group)
        self._left[group][copy.tier] -= self._sizes[sample]

    def drop(self, group: int, sample: int, step: int) -> None:
        """Let a group drop a copy."""
        copy = self.copies[group].pop(sample)
        self._owners[sample].remove(group)
        self._left[group][copy.tier] += self._sizes[sample]
        self._drops.append((group, step, sample))

    def _at(self, access: Access) -> tuple[int, int, int]:
        return access.group, access.step - self.state.step, access.place

    def finish(self, chosen: Ints) -> tuple[Placement, State]:
        """Return the plan and the state behind it."""
        drops = np.array(sorted(self._drops), np.int64).reshape(-1, 3)
        line = self.state.line
        placement = Placement(
            epoch=self.epoch.epoch,
            first_step=self.state.step,
            samples=self.order,
            owner=self._owner,
            tier=self._tier,
            ready=self._ready,
            keep=self._keep,
            drop_bounds=np.searchsorted(drops[:, 0], np.arange(line.groups + 1)).astype(np.int64),
            drop_steps=drops[:, 1].copy(),
            drop_samples=drops[:, 2].copy(),
        )
        step = self.state.step + self.order.shape[1]
        return placement, State(line=line, step=step, held=self._held(), chosen=chosen)

    def _held(self) -> Held:
        rows = [
            (group, sample, copy.tier, copy.ready, copy.free)
            for group, copies in enumerate(self.copies)
            for sample, copy in copies.items()
        ]
        table = np.array(rows, np.int64).reshape(-1, 5)
        return Held(
            group=table[:, 0].astype(np.int32),
            sample=table[:, 1].copy(),
            tier=table[:, 2].astype(np.int8),
            ready=table[:, 3].copy(),
            free=table[:, 4].copy(),
        )


def initial_state(line: Line, held: Held) -> State:
    """Return the state before the first epoch."""
    held.check(line)
    return State(line=line, step=0, held=held)
