"""Policy: the contract of what decides who keeps which block.

Rules for every policy, which `tests/prefetch/test_placement.py` checks with `validate`:

1. Pure: equal arguments give equal placements, on every rank and machine; nothing that is given is changed.
2. Rolling: `place` is called for one epoch after the other, each time with the state that the call before returned.
3. What it plans keeps the rules of `placement`, whatever the orders, sizes, rooms and blocks held at the start.
4. It never plans more reads of the storage than one for each access.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from voxload.prefetch.line import EpochOrder, Held, Ints, Line
from voxload.prefetch.placement import Placement


@dataclass(frozen=True, slots=True)
class State:
    """What a policy knows between two epochs."""

    line: Line
    step: int
    """Number of the coming epoch's first step."""
    held: Held
    """What the tiers contain once everything planned so far is done."""
    chosen: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """Of a policy that chooses once for all: (group, sample, tier) rows, sorted; empty otherwise."""


@runtime_checkable
class Policy(Protocol):
    """A way to decide who keeps which block."""

    @property
    def name(self) -> str:
        """Name by which `named` finds it."""
        ...

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch.

        Raises
        ------
        UsageError
            What is held is not of this line, or more than its rooms.
        """
        ...

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch.

        Parameters
        ----------
        state
            What `begin` or the `place` of the epoch before returned.
        epoch
            The epoch to plan.
        ahead
            The ones behind it as far as they are known, possibly none.
        """
        ...
