"""Future: what one job will use, in order, and when it is likely to; pure.

A job's speed is measured, not told: jobs that share a cache compute for different times on what they use, and one that
is stopped in a debugger uses nothing for an hour. What it will use then is far away, and should not keep others out.
"""

from __future__ import annotations

import math

import numpy as np

from voxload.errors import InternalError
from voxload.prefetch.line import Ints
from voxload.prefetch.simulation.optimum import following_uses

NEVER = np.iinfo(np.int64).max
"""Place of a use that does not come."""
_MEMORY = 10.0
"""Seconds over which a job's speed is averaged: some steps of slow jobs, a few batches of reads of fast ones."""
_PAUSE = 4.0
"""Times the usual gap between two moves, from which on a job is taken to be slower than it was."""


class Future:
    """One job's; not safe to use from several threads at once.

    Parameters
    ----------
    now
        When it begins.
    is_pin
        Whether all of it may be used any moment, and none of it ever is: it is there to be kept near.
    """

    def __init__(self, now: float, *, is_pin: bool = False) -> None:
        self.is_pin = is_pin
        self.place = 0
        """Uses that have passed."""
        self.end = 0
        """Behind the last use that is foreseen."""
        self.scanned = 0
        """All uses from `place` to here are there, being read, or given up; for the planner, which keeps it."""
        self._first = 0  # place of the first use that is remembered
        self._uses: Ints = np.zeros(0, np.int64)  # numbers of units in `units`
        self._following: Ints = np.zeros(0, np.int64)  # place of the next use of the same unit
        self.units: Ints = np.zeros(0, np.int64)
        """All that it will use, in ascending order."""
        self._next: Ints = np.zeros(0, np.int64)  # place of each unit's next use
        self._moved_at = now
        # Sums that fade: of seconds, of uses and of moves, which may be of many uses.
        self._seconds = self._used = self._moves = 0.0

    def foresee(self, place: int, units: Ints) -> None:
        """Learn what is used from a place on; what was foreseen from there on is forgotten.

        Takes time that grows with all that is foreseen. Raises InternalError where the place is out of reach.
        """
        if not self.place <= place <= self.end:
            raise InternalError("future", found=f"uses from {place} on", expected=f"from {self.place} to {self.end}")
        kept = self.units[self._uses[self.place - self._first : place - self._first]]
        every = np.concatenate([kept, np.asarray(units, np.int64)])
        self.units, self._uses = np.unique(every, return_inverse=True)
        self._first, self.end = self.place, self.place + len(every)
        self._following = self._first + following_uses(self._uses)
        self._following[self._following >= self.end] = NEVER
        self._next = np.full(len(self.units), NEVER, np.int64)
        # Backwards: of what is used several times the first use is written last.
        self._next[self._uses[::-1]] = np.arange(self.end - 1, self._first - 1, -1)
        self.scanned = min(self.scanned, place)

    def advance(self, place: int, now: float) -> Ints:
        """Note that all before a place has passed; return the units that were used meanwhile."""
        if not self.place <= place <= self.end:
            raise InternalError("future", found=f"place {place}", expected=f"{self.place} to {self.end}")
        passed = self._uses[self.place - self._first : place - self._first]
        # Of what is used several times the last use counts: numpy assigns in order.
        self._next[passed] = self._following[self.place - self._first : place - self._first]
        if place > self.place:
            self._measure(place - self.place, now)
        self.place, self.scanned = place, max(self.scanned, place)
        return self.units[passed]

    def use(self, place: int) -> int:
        """Return the unit that is used at a place that has not passed."""
        return int(self.units[self._uses[place - self._first]])

    def next_use(self, unit: int) -> int:
        """Return the place of a unit's next use; `NEVER` where none is foreseen."""
        at = int(np.searchsorted(self.units, unit))
        return int(self._next[at]) if at < len(self.units) and self.units[at] == unit else int(NEVER)

    def pace(self, now: float, otherwise: float) -> float:
        """Return the seconds from one use to the next; `otherwise` where none was measured.

        A job that has used nothing for several times as long as it mostly does is taken to be as slow as that shows.
        """
        if self.is_pin:
            return 0.0
        if not self._used:
            return otherwise
        gap = self._seconds / self._moves
        return self._seconds / self._used * max(1.0, (now - self._moved_at) / (_PAUSE * gap)) if gap else otherwise

    def due(self, unit: int, now: float, otherwise: float) -> float:
        """Return in how many seconds a unit is used that is waited for; at once, where no use is foreseen."""
        place = self.next_use(unit)
        return 0.0 if place == NEVER else (place - self.place) * self.pace(now, otherwise)

    @property
    def measured(self) -> float | None:
        """Seconds from one use to the next, as they were; None where nothing was measured."""
        return self._seconds / self._used if self._used and self._seconds else None

    def seconds_to(self, units: Ints, now: float, otherwise: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return in how many seconds each of some units is used; infinity where no use is foreseen."""
        found = np.full(len(units), math.inf)
        if len(self.units):
            at = np.minimum(np.searchsorted(self.units, units), len(self.units) - 1)
            places = self._next[at]
            is_used = (self.units[at] == units) & (places != NEVER)
            found[is_used] = (places[is_used] - self.place) * self.pace(now, otherwise)
        return found

    def _measure(self, uses: int, now: float) -> None:
        passed, self._moved_at = now - self._moved_at, now
        fading = math.exp(-passed / _MEMORY)
        self._seconds = fading * self._seconds + passed
        self._used = fading * self._used + uses
        self._moves = fading * self._moves + 1
