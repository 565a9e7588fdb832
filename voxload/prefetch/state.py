"""State: all that a planner knows; its parts change it, `check` reads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from voxload.prefetch.access import Flight, Lane, Step
from voxload.prefetch.holdings import Holdings
from voxload.prefetch.lanes import Lanes
from voxload.prefetch.limits import Limits
from voxload.prefetch.line import Line
from voxload.prefetch.schedule import Schedule
from voxload.prefetch.trust import Trust


class State:
    """What one planner knows of steps, slots, fetches, its own tiers and its peers."""

    def __init__(self, line: Line, group: int, *, limits: Limits, held: Mapping[int, int]) -> None:
        self.group = group
        self.limits = limits
        self.seats = {
            Lane.STORAGE: limits.storage,
            Lane.PEER: limits.peer,
            Lane.AWAITED: limits.awaited,
            Lane.LOCAL: limits.local,
        }
        self.taken = dict.fromkeys(Lane, 0)
        """Seats of each lane that are taken."""
        self.holdings = Holdings(line, group, held)
        self.schedule = Schedule()
        self.lanes = Lanes()
        self.trust = Trust(limits.strikes)
        self.steps: dict[int, Step] = {}
        """Those being filled, in order."""
        self.flights: dict[int, Flight] = {}
        """Fetches under way, by ticket."""
        self.free: deque[int] = deque()
        """Slots that wait for a step."""
        self.draining: dict[int, Step] = {}
        """By slot: steps that were cut while something was under way."""
        self.out: deque[int] = deque()
        """Steps that are ready and not yet delivered, in order."""
        self.next = 0
        """The step that the next slot is for."""
        self.clock: int | None = None
        """The last step delivered, or before the first one; empty ones count. None before the first plan."""

    @property
    def now_at(self) -> int:
        """The last step delivered; -1 before the first plan."""
        return -1 if self.clock is None else self.clock

    def free_seats(self, lane: Lane) -> int:
        """Return how many more fetches may be under way."""
        return self.seats[lane] - self.taken[lane]

    def is_at_hand(self, step: Step) -> bool:
        """Tell whether the consumer may be waiting for a step."""
        return step.number == self.now_at + 1

    def drain(self, step: Step) -> None:
        """Take back the slot of a step that was cut, when nothing is under way there."""
        if step.busy == 0:
            del self.draining[step.slot]
            self.free.append(step.slot)
