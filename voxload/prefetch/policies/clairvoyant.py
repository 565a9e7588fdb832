"""Clairvoyant: keep what is used again soonest, once on the line before any is kept twice.

Reading from a peer is far cheaper than reading the storage, so all tiers of a line are one cache, which evicts what is
used again last (Belady 1966) and does not keep what is used again later than all that it has. Two things make it differ
from a shared cache: a group stores only what passes through its hands, and what others use is dropped two steps later.

What each step does, in this order:

1. Blocks that are nowhere are read, those that are used again soonest first, and stored by who reads them. Of several
   groups that want one, the one that has room at no cost reads it, then the one that uses it most.
2. Room is made by dropping replicas, then blocks that another group has too, then those that are used last, and never
   one that is used earlier than the new one. A block without known next use gets room that costs nothing.
3. All others are fetched from where they are. A group that will use one again keeps a replica in memory that is left.
4. A group that soon reads a block for which it has no room is relieved: who fetches a block of its, and has one that
   is used later than all that it would lose, takes that block over, and the group drops it two steps later. So room
   on the line moves to where it is wanted.

An order that visits every sample once an epoch gives each block to a single group in the first one, and nobody else has
it in hand: the storage is read exactly once if, and only if, each group's room holds what it is the first to read. For
equal rooms, equal sizes and torch's samplers that is the data set divided by the groups, rounded up, and, where blocks
do not fill the memory to the last byte, one block for the memory. Blocks of unequal sizes need as much more as the
largest share exceeds the mean one; rooms that are unequal lose in the first epoch what does not fit.

``core/plan/clairvoyant.c`` is the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voxload.core.library import function
from voxload.prefetch.line import EpochOrder, Held, Line
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.protocol import State
from voxload.prefetch.policies.tables import Tables

_place = function("place_epoch", "rrriiiiwwwww")


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """Belady's policy over all tiers of a line, as far as blocks can move; see above."""

    name: str = "clairvoyant"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        held.check(line)
        return State(line=line, step=0, held=held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch."""
        tables = Tables.of(state, epoch, ahead)
        groups, _, batch = tables.order.shape
        missed = np.zeros((groups * batch, 2), np.int64)
        _place(tables.addresses(), tables.order, tables.ends, *tables.order.shape, state.step, *tables.answers, missed)
        return tables.placement(), State(line=state.line, step=state.step + epoch.steps, held=tables.held())
