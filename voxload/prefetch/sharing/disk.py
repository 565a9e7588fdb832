"""DiskLevel: which units lie on disk beside those in memory, and which go for others; pure.

What is in memory is offered when it is read and whenever it was used; that is when its next use is known best. What
lies here stays when it goes from memory, and is read from here then, and not from the storage.

1. A unit is stored where there is room, or in the place of such as are used later than it, over all jobs.
2. Units that lie here and units that are being stored never take more than the room, but for what was found here by
   surprise, or a moment after the room was made smaller: then units go until that is so again.
3. A few units are being stored at once: the disk has reads to do.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping

import numpy as np

from voxload.errors import InternalError
from voxload.prefetch.sharing.events import Erase, Instruction, Store
from voxload.prefetch.sharing.future import Future
from voxload.prefetch.sharing.victims import Victims, usual_pace

_OFFERED = 4096
"""Units that wait to be stored, at most: the oldest are not in memory any more by then."""


class DiskLevel:
    """What lies on disk; not safe to use from several threads at once.

    Parameters
    ----------
    room
        Bytes for all units; 0 where there is no disk.
    writes
        Units that are being stored at once.
    header
        Bytes that each takes beyond its size.
    sizes, futures
        Bytes of units and what jobs will use, by number; the planner's own.
    """

    def __init__(
        self, room: int, *, writes: int, header: int, sizes: Mapping[int, int], futures: Mapping[int, Future]
    ) -> None:
        self._room, self._writes, self._header, self._sizes, self._futures = room, writes, header, sizes, futures
        self._held: dict[int, None] = {}
        self._storing: dict[int, None] = {}
        self._offered: dict[int, None] = {}
        self._victims = Victims(futures)
        self._used = 0

    @property
    def held(self) -> Mapping[int, None]:
        """The units that lie here."""
        return self._held

    @property
    def storing(self) -> Mapping[int, None]:
        """The units that are being stored."""
        return self._storing

    @property
    def used(self) -> int:
        """Bytes of what lies here and what is being stored."""
        return self._used

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being stored, or will be unless more is offered."""
        return not self._storing and not self._offered

    def offer(self, units: Iterable[int], *, most: int = _OFFERED) -> None:
        """Consider units that are in memory; of those that were offered, the last `most` are."""
        if not self._room:
            return
        for unit in units:
            self._offered.pop(unit, None)
            self._offered[unit] = None
        while len(self._offered) > most:
            del self._offered[next(iter(self._offered))]

    def awaits(self, unit: int) -> bool:
        """Tell whether a unit was offered and will be considered, once others are stored."""
        return unit in self._offered

    def changed(self, units: Iterable[int]) -> None:
        """Note that units are used next at another time."""
        self._victims.changed(units)

    def reorder(self) -> None:
        """Note that what is foreseen has changed."""
        self._victims.reorder()

    def resize(self, room: int) -> None:
        """Have another amount of room."""
        self._room = room

    def found(self, unit: int) -> None:
        """Note that a unit lies here, whoever stored it."""
        if unit not in self._held and unit not in self._storing:
            self._used += self._size(unit)
            self._held[unit] = None
            self._victims.add(unit)

    def stored(self, unit: int, *, is_kept: bool) -> None:
        """Note what came of storing a unit."""
        if unit not in self._storing:
            raise InternalError("sharing", found=f"unit {unit} stored", expected="one that is being stored")
        del self._storing[unit]
        if is_kept:
            self._held[unit] = None
            self._victims.add(unit)
        else:
            self._used -= self._size(unit)

    def forget(self, unit: int) -> None:
        """Have a unit no more; nothing happens where it does not lie here."""
        if unit in self._held:
            del self._held[unit]
            self._used -= self._size(unit)
            self._victims.remove(unit)

    def steps(self, now: float, *, memory: Container[int]) -> Iterator[Instruction]:
        """Yield what is to be done: too much goes, and of what was offered and is in `memory`, some is stored."""
        while self._used > self._room and (found := self._victims.pop(now)) is not None:
            yield self._erased(found[0])
        while self._offered and len(self._storing) < self._writes:
            unit = next(iter(self._offered))
            del self._offered[unit]
            if unit in memory and unit not in self._held and unit not in self._storing:
                yield from self._placed(unit, now)

    def unused(self, now: float) -> Iterator[Instruction]:
        """Yield what removes all that nobody will use."""
        for unit in self._victims.unused(now):
            yield self._erased(unit)

    def _placed(self, unit: int, now: float) -> Iterator[Instruction]:
        """Yield what stores a unit; nothing where there is no room for it that is of less use."""
        missing = self._used + self._size(unit) - self._room
        gone = self._later(missing, self._seconds_to(unit, now), now) if missing > 0 else []
        if gone is None:
            return
        for victim in gone:
            yield self._erased(victim)
        self._storing[unit] = None
        self._used += self._size(unit)
        yield Store(unit)

    def _later(self, nbytes: int, due: float, now: float) -> list[int] | None:
        """Take out units of so many bytes that are used later than in `due` seconds; None where there are not such."""
        gone: list[tuple[int, float]] = []
        while nbytes > 0:
            found = self._victims.pop(now)
            if found is not None:
                gone.append(found)
                nbytes -= self._size(found[0])
            if found is None or found[1] <= due:
                for victim, seconds in gone:
                    self._victims.back(victim, now, seconds)
                return None
        return [victim for victim, _ in gone]

    def _size(self, unit: int) -> int:
        return self._sizes[unit] + self._header

    def _erased(self, unit: int) -> Instruction:
        self.forget(unit)
        return Erase(unit)

    def _seconds_to(self, unit: int, now: float) -> float:
        one, otherwise = np.array([unit], np.int64), usual_pace(self._futures.values())
        found = (float(future.seconds_to(one, now, otherwise)[0]) for future in self._futures.values())
        return min(found, default=math.inf)

    def validate(self) -> None:
        """Raise an InternalError where what this counts does not agree; for tests and hunts for bugs."""
        used = sum(self._size(unit) for unit in (*self._held, *self._storing))
        if used != self._used or len(self._victims) != len(self._held):
            found = f"{self._used} bytes, {len(self._victims)} that may go"
            raise InternalError("sharing on disk", found=found, expected=f"{used} bytes, {len(self._held)} units")
