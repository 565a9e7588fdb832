"""Victims: which of the units that are kept in one place is used last, over all jobs; pure.

What is used when changes with every use and every order, for many units at once, and hardly any of it is ever asked
for: a cache with room evicts nothing. So changes are noted, and worked out for all of them together when somebody asks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterable, Iterator, Mapping

import numpy as np

from voxload.prefetch.sharing.future import Future

_SHARE = 8
"""All is worked out anew after so great a part of what is kept was evicted: jobs' speeds change meanwhile."""


class Victims:
    """The units that are kept, by when they are used next.

    Parameters
    ----------
    futures
        Of all jobs, by number; whoever changes them says so here.
    elsewhere
        Units that are kept near in another place as well: no pin keeps those here.
    """

    def __init__(self, futures: Mapping[int, Future], elsewhere: Container[int] = ()) -> None:
        self._futures, self._elsewhere = futures, elsewhere
        self._kept: dict[int, int] = {}  # version of each unit's place in the heap
        self._versions = 0
        self._changed: set[int] = set()
        self._heap: list[tuple[float, int, int]] = []  # (minus the time, version, unit)
        self._taken = 0
        self._is_stale = False

    def __len__(self) -> int:
        """Return how many units there are."""
        return len(self._kept)

    def add(self, unit: int) -> None:
        """Take in a unit that is kept from now on."""
        self._kept[unit] = -1
        self._changed.add(unit)

    def remove(self, unit: int) -> None:
        """Forget a unit; nothing happens where it is not there."""
        self._kept.pop(unit, None)
        self._changed.discard(unit)

    def changed(self, units: Iterable[int]) -> None:
        """Note that units are used next at another time, or kept elsewhere or not any more."""
        self._changed.update(unit for unit in units if unit in self._kept)

    def reorder(self) -> None:
        """Note that what is foreseen has changed."""
        self._is_stale = True

    def pop(self, now: float) -> tuple[int, float] | None:
        """Take out the unit that is used last, and say in how many seconds that is; None where there is none."""
        if self._is_stale or self._taken * _SHARE > len(self._kept):
            self._heap, self._changed = [], set(self._kept)
            self._is_stale, self._taken = False, 0
        if self._changed:
            self._place(self._changed, now)
            self._changed = set()
        while self._heap:
            least, version, unit = heapq.heappop(self._heap)
            if self._kept.get(unit) == version:
                del self._kept[unit]
                self._taken += 1
                return unit, max(0.0, -least - now)
        return None

    def unused(self, now: float) -> Iterator[int]:
        """Take out the units that nobody will use."""
        while (found := self.pop(now)) is not None:
            if found[1] < math.inf:
                self.back(found[0], now, found[1])
                return
            yield found[0]

    def back(self, unit: int, now: float, seconds: float) -> None:
        """Put back a unit that was taken out and is kept after all."""
        self._push(unit, now + seconds)
        self._taken -= 1

    def _place(self, units: Iterable[int], now: float) -> None:
        wanted = np.fromiter(units, np.int64)
        seconds = np.full(len(wanted), math.inf)
        otherwise = usual_pace(self._futures.values())
        for future in self._futures.values():
            found = future.seconds_to(wanted, now, otherwise)
            if future.is_pin:
                found[[unit in self._elsewhere for unit in wanted.tolist()]] = math.inf
            np.minimum(seconds, found, out=seconds)
        for unit, time in zip(wanted.tolist(), (now + seconds).tolist(), strict=True):
            self._push(unit, time)

    def _push(self, unit: int, time: float) -> None:
        self._versions += 1
        self._kept[unit] = self._versions
        heapq.heappush(self._heap, (-time, self._versions, unit))


def usual_pace(futures: Iterable[Future]) -> float:
    """Return the seconds between two uses of a job of which nothing was measured yet: as of the fastest that was."""
    return min((found for future in futures if (found := future.measured) is not None), default=1.0)
