"""Staging: every block comes from the storage, and nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxload.prefetch.held import Held
from voxload.prefetch.line import EpochOrder, Line
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.draft import Draft, start
from voxload.prefetch.policies.protocol import State


@dataclass(frozen=True, slots=True)
class Staging:
    """What a plain loader does: with staging buffers ahead of use, or none; that is for who executes it to say.

    What tiers hold from an earlier job stays there, unused.
    """

    name: str = "staging"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        return start(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; what is ahead makes no difference."""
        del ahead
        return Draft(state, epoch).finish(state.chosen)
