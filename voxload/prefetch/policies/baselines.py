"""Baselines: policies of other loaders, to compare the clairvoyant one with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voxload.prefetch.line import DISK, MEMORY, EpochOrder, Held, Ints, Line
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.builder import Access, PlacementBuilder, initial_state
from voxload.prefetch.policies.protocol import State
from voxload.prefetch.policies.uses import order_of


@dataclass(frozen=True, slots=True)
class Staging:
    """What a plain loader does: with staging buffers ahead of use, or none; that is for who executes it to say.

    What tiers hold from an earlier job stays there, unused.
    """

    name: str = "staging"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        return initial_state(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; what is ahead makes no difference."""
        del ahead
        return PlacementBuilder(state, epoch).finish(state.chosen)


@dataclass(frozen=True, slots=True)
class FirstTouch:
    """LBANN's data store in its explicit mode (Jacobs et al. 2019): cached by its first reader, fetched from it later.

    That store holds the whole data set in memory or fails; here blocks that find no room are read again by who needs
    them, and one that has room then owns them. Nothing is evicted.
    """

    name: str = "first-touch"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        return initial_state(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; what is ahead makes no difference."""
        del ahead
        draft = PlacementBuilder(state, epoch)
        for access in draft.accesses():
            owner = draft.nearest(access)
            if owner >= 0:
                draft.take(access, owner)
                continue
            tier = draft.fits(access.group, access.sample)
            if tier >= 0:
                draft.store(access, tier)
        return draft.finish(state.chosen)


@dataclass(frozen=True, slots=True)
class Shards:
    """Static shards: sample s belongs to group s mod N, as in DDStore (Choi et al. 2023) and parallel staging.

    Those fill the shards before training, from the storage. Here a group stores only what passes through its hands: a
    sample is kept at the first use by its own group, and read from the storage by whoever uses it before. Nothing is
    evicted but, at the start, what an earlier job left at a group that it does not belong to.
    """

    name: str = "shards"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        return initial_state(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; what is ahead makes no difference."""
        del ahead
        draft, groups = PlacementBuilder(state, epoch), state.line.groups
        for group, copies in enumerate(draft.copies):
            for sample in [sample for sample in copies if sample % groups != group]:
                draft.drop(group, sample, state.step)
        for access in draft.accesses():
            owner = draft.nearest(access)
            if owner >= 0:
                draft.take(access, owner)
            elif access.sample % groups == access.group:
                tier = draft.fits(access.group, access.sample)
                if tier >= 0:
                    draft.store(access, tier)
        return draft.finish(state.chosen)


@dataclass(frozen=True, slots=True)
class Lru:
    """A node-local cache that evicts what was used least recently; what a page cache or a caching file system does.

    A block stays in the tier that it was stored in. A new one takes free room, in memory first, or replaces the least
    recently used ones of the tier that has the very least recently used one.
    """

    name: str = "lru"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        return initial_state(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; what is ahead makes no difference."""
        del ahead
        draft = PlacementBuilder(state, epoch)
        for access in draft.accesses():
            copies = draft.copies[access.group]
            if access.sample in copies:
                draft.take(access, access.group)
                copies[access.sample] = copies.pop(access.sample)
                continue
            tier = draft.fits(access.group, access.sample)
            if tier < 0:
                tier = _evict(draft, access)
            if tier >= 0:
                draft.store(access, tier)
        return draft.finish(state.chosen)


def _evict(draft: PlacementBuilder, access: Access) -> int:
    """Make room for an access's block and return the tier, or -1 where what is not in use does not suffice."""
    copies = draft.copies[access.group]
    oldest = next(iter(copies.values())).tier if copies else MEMORY
    for tier in (oldest, DISK if oldest == MEMORY else MEMORY):
        lacking, victims = draft.size(access.sample) - draft.left(access.group, tier), []
        for sample, copy in copies.items():
            if copy.tier == tier and copy.free <= access.step:
                victims.append(sample)
                lacking -= draft.size(sample)
                if lacking <= 0:
                    break
            elif copy.free > access.step:  # and so are all behind it
                break
        if lacking <= 0:
            for sample in victims:
                draft.drop(access.group, sample, access.step)
            return tier
    return -1


@dataclass(frozen=True, slots=True)
class Nopfs:
    """The placement of NoPFS (Dryden et al. 2021, arXiv 2101.08734, section 5) on a line's groups.

    Each group sorts the samples that it uses in all known epochs by how often it does, then by first use, and fills
    its memory, then its disk. What it chose it stores when it first uses it; others fetch from the copy in the fastest
    tier, then the oldest. The choice is made with the first epoch and stays. NoPFS has no tiers that outlive a job:
    what is found and used again is chosen first and stays where it is, all else is dropped.
    """

    name: str = "nopfs"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        return initial_state(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; the first one's `ahead` decides what is kept."""
        draft, chosen = PlacementBuilder(state, epoch), state.chosen
        if state.step == 0:
            orders = [order_of(each, len(state.line.sizes), state.line.groups) for each in (epoch, *ahead)]
            parts = [_choose(draft, group, [order[group] for order in orders]) for group in range(state.line.groups)]
            chosen = np.concatenate(parts)
        tiers: list[dict[int, int]] = [{} for _ in state.line.rooms]
        for group, sample, tier in chosen.tolist():
            tiers[group][sample] = tier
        for access in draft.accesses():
            owner = draft.nearest(access)
            if owner >= 0:
                draft.take(access, owner)
            if owner != access.group and access.sample in tiers[access.group]:
                draft.store(access, tiers[access.group][access.sample])
        return draft.finish(chosen)


def _choose(draft: PlacementBuilder, group: int, orders: Sequence[Ints]) -> Ints:
    """Return what a group keeps, (group, sample, tier) rows, and drop what it holds besides."""
    uses = np.concatenate([order.ravel() for order in orders])
    samples, first, counts = np.unique(uses[uses >= 0], return_index=True, return_counts=True)
    wanted = samples[np.lexsort((first, -counts))].tolist()
    copies = draft.copies[group]
    is_wanted = set(wanted)
    for sample in [sample for sample in copies if sample not in is_wanted]:
        draft.drop(group, sample, draft.state.step)
    left = [draft.left(group, tier) for tier in (MEMORY, DISK)]
    rows = [(group, sample, copy.tier) for sample, copy in copies.items()]
    for sample in wanted:
        if sample in copies:
            continue
        for tier in (MEMORY, DISK):
            if draft.size(sample) <= left[tier]:
                left[tier] -= draft.size(sample)
                rows.append((group, sample, tier))
                break
        if not any(left):
            break
    return np.array(sorted(rows), np.int64).reshape(-1, 3)
