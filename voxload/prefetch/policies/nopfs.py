"""NoPFS: every group keeps what it uses most itself, chosen once for all epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voxload.prefetch.held import Held
from voxload.prefetch.line import DISK, MEMORY, EpochOrder, Ints, Line
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.draft import Draft, start
from voxload.prefetch.policies.protocol import State
from voxload.prefetch.policies.uses import order_of


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
        return start(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; the first one's `ahead` decides what is kept."""
        draft, chosen = Draft(state, epoch), state.chosen
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


def _choose(draft: Draft, group: int, orders: Sequence[Ints]) -> Ints:
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
