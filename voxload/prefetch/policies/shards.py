"""Shards: every sample has one group that may keep it, whoever uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxload.prefetch.held import Held
from voxload.prefetch.line import EpochOrder, Line
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.draft import Draft, start
from voxload.prefetch.policies.protocol import State


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
        return start(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; what is ahead makes no difference."""
        del ahead
        draft, groups = Draft(state, epoch), state.line.groups
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
