"""First touch: the group that reads a block first owns it for good, while there is room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxload.prefetch.held import Held
from voxload.prefetch.line import EpochOrder, Line
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.draft import Draft, start
from voxload.prefetch.policies.protocol import State


@dataclass(frozen=True, slots=True)
class FirstTouch:
    """LBANN's data store in its explicit mode (Jacobs et al. 2019): cached by its first reader, fetched from it later.

    That store holds the whole data set in memory or fails; here blocks that find no room are read again by who needs
    them, and one that has room then owns them. Nothing is evicted.
    """

    name: str = "first-touch"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        return start(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; what is ahead makes no difference."""
        del ahead
        draft = Draft(state, epoch)
        for access in draft.accesses():
            owner = draft.nearest(access)
            if owner >= 0:
                draft.take(access, owner)
                continue
            tier = draft.fits(access.group, access.sample)
            if tier >= 0:
                draft.store(access, tier)
        return draft.finish(state.chosen)
