"""SharedPlanner: what is read for several jobs, and what has to go for it; pure.

It has no thread, clock or file; see `voxload.prefetch.planning.planner`, which plans for one rank that knows where each
block will be. Here nobody knows: jobs come, go, and run at their own speeds. So nothing is placed ahead; what is read
next, and what goes for it, is decided when a read can begin.

1. A unit is read once for all who will use it. What jobs wait for comes first, then what they do not wait for yet; of
   both, what is due first over all jobs.
2. What is used last, over all jobs, goes first (Belady 1966). For what nobody waits for yet, nothing goes that is used
   earlier, and while that makes something go, hardly anything is read ahead (`SharingLimits.allows`): what is read
   too early takes the room of what is used meanwhile.
3. Units that are kept and units that are being read never take more than the room, but for a moment where the room was
   made smaller: then units go until that is so again.
4. Each `Wanted` has one `Answer`, unless the job ends before.
5. A unit whose read failed is not read ahead any more; who asks for it is told, and it is tried again for them.
6. What lies on disk is read from there; see `DiskLevel` for what does. It stays in memory while it is being stored, and
   where it is lost meanwhile, it is read again when that has ended.
7. What is pinned is used any moment as far as this is concerned, until the pin ends: in memory or on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from voxload.errors import InternalError
from voxload.prefetch.line import Ints
from voxload.prefetch.sharing.disk import DiskLevel
from voxload.prefetch.sharing.events import (
    OF_JOBS,
    Answer,
    Began,
    Cleared,
    Draining,
    Drop,
    Ended,
    Erase,
    Event,
    Foreseen,
    Instruction,
    Lost,
    OfJobs,
    Reached,
    Read,
    ReadDone,
    ReadsChanged,
    RoomChanged,
    Store,
    Stored,
    Wanted,
)
from voxload.prefetch.sharing.future import NEVER, Future
from voxload.prefetch.sharing.limits import SharingLimits
from voxload.prefetch.sharing.victims import Victims, usual_pace

_RECENT = 2**16
"""Uses that are remembered."""
_LOOKED_AT = 64
"""Units that are waited for, of which the most urgent is read next."""


class SharedPlanner:
    """Plans what is kept for several jobs; not safe to use from several threads at once.

    Parameters
    ----------
    room
        Bytes for all units, in memory.
    disk
        Bytes for all units, on disk.
    limits
        How much is under way at once.

    Raises
    ------
    InternalError
        An event cannot be: a job or unit that is not known, a read that is not under way.
    """

    def __init__(self, room: int, *, disk: int = 0, limits: SharingLimits) -> None:
        self.limits = limits
        """How much is under way at once."""
        self._room = room
        self._sizes: dict[int, int] = {}
        self._futures: dict[int, Future] = {}
        self._disk = DiskLevel(
            disk, writes=limits.writes, header=limits.header, sizes=self._sizes, futures=self._futures
        )
        self._victims = Victims(self._futures, self._disk.held)
        self._held: dict[int, None] = {}
        self._reading: dict[int, bool] = {}  # whether it should lie on disk
        self._failed: set[int] = set()
        self._waiting: dict[int, list[int]] = {}  # jobs by unit, in the order of asking
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._used = 0
        self._is_draining = False

    @property
    def used(self) -> int:
        """Bytes of what is in memory and what is being read."""
        return self._used

    @property
    def recent(self) -> Ints:
        """What jobs used last, in the order in which they did."""
        return np.fromiter(self._recent, np.int64)

    @property
    def reading(self) -> int:
        """Units that are being read."""
        return len(self._reading)

    def has(self, unit: int) -> bool:
        """Tell whether a unit is in memory or on disk, or on its way there."""
        return any(unit in place for place in (self._held, self._reading, self._disk.held, self._disk.storing))

    @property
    def held(self) -> Mapping[int, None]:
        """The units that are in memory."""
        return self._held

    @property
    def disk(self) -> DiskLevel:
        """The units that are on disk."""
        return self._disk

    def know(self, units: Ints, sizes: Ints) -> None:
        """Learn the bytes of units, by their numbers; of such as are neither there nor being read nor foreseen."""
        for unit, size in zip(units.tolist(), sizes.tolist(), strict=True):
            if self.has(unit):
                raise InternalError("sharing", found=f"unit {unit} known anew", expected="one that is not there")
            self._sizes[unit] = size
            self._failed.discard(unit)

    def handle(self, event: Event) -> list[Instruction]:
        """Take in what happened; return what is to be done now, in this order."""
        answer = [*(self._job_said(event) if isinstance(event, OF_JOBS) else self._happened(event))]
        answer.extend(self._fit(event.now))
        answer.extend(self._stores(event.now))
        answer.extend(self._reads(event.now))
        return answer

    def validate(self) -> None:
        """Raise an InternalError where what this counts does not agree; for tests and hunts for bugs."""
        used = sum(self._sizes[unit] for unit in (*self._held, *self._reading))
        apart = self._held.keys().isdisjoint(self._reading)
        free = len(self._held.keys() - self._disk.storing.keys())
        if used != self._used or not apart or len(self._victims) != free:
            found = f"{self._used} bytes, {len(self._victims)} that may go"
            raise InternalError("sharing", found=found, expected=f"{used} bytes, {free} units")
        self._disk.validate()

    # What events say.

    def _job_said(self, event: OfJobs) -> Iterator[Instruction]:
        match event:
            case Began(now, job, is_pin):
                self._began(job, now, is_pin=is_pin)
            case Foreseen(_, job, place, units):
                self._foreseen(job, place, units)
            case Reached(now, job, place):
                self._reached(self._future(job).advance(place, now).tolist())
            case Wanted(_, job, unit):
                yield from self._wanted(job, unit)
            case Ended(_, job):
                self._ended(job)

    def _happened(self, event: Event) -> Iterator[Instruction]:
        match event:
            case ReadDone(_, unit, is_kept, is_on_disk):
                yield from self._read_done(unit, is_kept=is_kept, is_on_disk=is_on_disk)
            case Stored(_, unit, is_kept):
                self._stored(unit, is_kept=is_kept)
            case Lost(_, unit):
                self._forget(unit)
                self._victims.remove(unit)
            case RoomChanged(_, room):
                self._room = room
                yield from self._too_large()
            case ReadsChanged(_, reads):
                self.limits = replace(self.limits, reads=reads)
            case Cleared(now):
                yield from self._cleared(now)
            case Draining():
                yield from self._drained()

    def _began(self, job: int, now: float, *, is_pin: bool) -> None:
        if job in self._futures:
            raise InternalError("sharing", found=f"job {job} begun twice")
        self._futures[job] = Future(now, is_pin=is_pin)

    def _foreseen(self, job: int, place: int, units: Ints) -> None:
        if not all(map(self._sizes.__contains__, units.tolist())):
            raise InternalError("sharing", found="units foreseen", expected="such as are known")
        self._future(job).foresee(place, units)
        self._reorder()

    def _reached(self, units: Sequence[int]) -> None:
        self._recent.extend(units)
        self._victims.changed(units)
        self._disk.changed(units)
        self._disk.offer(unit for unit in units if unit in self._held)

    def _wanted(self, job: int, unit: int) -> Iterator[Instruction]:
        self._future(job)
        if unit not in self._sizes:
            raise InternalError("sharing", found=f"unit {unit} wanted", expected="one that is known")
        if unit in self._held:
            yield Answer(job, unit, is_there=True)
        elif self._is_draining or self._sizes[unit] > self._room:
            yield Answer(job, unit, is_there=False)
        else:
            self._waiting.setdefault(unit, []).append(job)

    def _ended(self, job: int) -> None:
        self._future(job)
        del self._futures[job]
        self._reorder()
        for unit, jobs in list(self._waiting.items()):
            jobs[:] = [one for one in jobs if one != job]
            if not jobs:
                del self._waiting[unit]

    def _read_done(self, unit: int, *, is_kept: bool, is_on_disk: bool) -> Iterator[Instruction]:
        if unit not in self._reading:
            raise InternalError("sharing", found=f"unit {unit} read", expected="one that is being read")
        del self._reading[unit]
        if is_on_disk:
            self._disk.found(unit)
        else:
            self._disk.forget(unit)
        if is_kept:
            self._held[unit] = None
            self._victims.add(unit)
            self._failed.discard(unit)
            self._disk.offer([unit])
        else:
            self._used -= self._sizes[unit]
            self._failed.add(unit)
        for job in self._waiting.pop(unit, ()):
            yield Answer(job, unit, is_there=is_kept)

    def _stored(self, unit: int, *, is_kept: bool) -> None:
        self._disk.stored(unit, is_kept=is_kept)
        (self._victims.add if unit in self._held else self._again)(unit)

    def _too_large(self) -> Iterator[Instruction]:
        """Tell those who wait for what does not fit any more; what is being read is answered when it is there."""
        yield from self._refused([unit for unit in self._waiting if self._sizes[unit] > self._room])

    def _cleared(self, now: float) -> Iterator[Instruction]:
        for unit in self._victims.unused(now):
            self._forget(unit)
            yield Drop(unit)
        yield from self._disk.unused(now)

    def _drained(self) -> Iterator[Instruction]:
        """Read nothing more, and store what is in memory."""
        self._is_draining = True
        self._disk.offer(self._held, most=len(self._sizes))
        yield from self._refused(list(self._waiting))

    def _refused(self, units: Sequence[int]) -> Iterator[Instruction]:
        for unit in units:
            if unit not in self._reading:
                for job in self._waiting.pop(unit):
                    yield Answer(job, unit, is_there=False)

    # What follows.

    def _fit(self, now: float) -> Iterator[Instruction]:
        """Let units go while there are more than there is room for."""
        while self._used > self._room and (found := self._victims.pop(now)) is not None:
            self._forget(found[0])
            yield Drop(found[0])

    def _stores(self, now: float) -> Iterator[Instruction]:
        for step in self._disk.steps(now, memory=self._held):
            match step:
                case Store(unit):
                    self._victims.remove(unit)
                case Erase(unit):
                    self._victims.changed([unit])
                    self._again(unit)
                case _:
                    pass
            yield step

    def _reads(self, now: float) -> Iterator[Instruction]:
        """Yield what is read now; what lies on disk first, which takes hardly any time."""
        for is_near in () if self._is_draining else (True, False):
            while sum(one == is_near for one in self._reading.values()) < self.limits.reads:
                found = self._next(now, is_near=is_near)
                gone = None if found is None else self._made_room(*found, now)
                if found is None or gone is None:
                    break
                unit, _ = found
                for victim in gone:
                    yield Drop(victim)
                self._reading[unit] = is_near
                self._used += self._sizes[unit]
                yield Read(unit, is_near=is_near)

    def _next(self, now: float, *, is_near: bool) -> tuple[int, float] | None:
        """Return what is read next, from disk or from the storage, and in how many seconds it is due."""
        otherwise = usual_pace(self._futures.values())
        asked = self._most_urgent(now, otherwise, is_near=is_near)
        if asked is not None:
            return asked, -1.0
        first: tuple[float, int] | None = None
        for future in self._futures.values():
            found = self._missing(future)
            if found is None or (found in self._disk.held) != is_near:
                continue
            uses, size = future.scanned - future.place, self._sizes[found]
            due, jobs = uses * future.pace(now, otherwise), len(self._futures)
            may_come = self._used + size <= self._room or future.is_pin
            may_come |= self.limits.allows(uses, size, room=self._room, jobs=jobs)
            if may_come and (first is None or due < first[0]):
                first = due, found
        return None if first is None else (first[1], first[0])

    def _most_urgent(self, now: float, otherwise: float, *, is_near: bool) -> int | None:
        """Return, of what jobs wait for, what one of them uses first; of the first few that were asked for."""
        found: tuple[float, int] | None = None
        near, busy = self._disk.held, self._reading.keys() | self._disk.storing.keys()
        waiting = (unit for unit in self._waiting if unit not in busy and (unit in near) == is_near)
        for unit in islice(waiting, _LOOKED_AT):
            due = min(self._futures[job].due(unit, now, otherwise) for job in self._waiting[unit])
            if found is None or due < found[0]:
                found = due, unit
        return None if found is None else found[1]

    def _missing(self, future: Future) -> int | None:
        """Return the first unit that a job will use and that is neither there nor on the way nor in vain."""
        while future.scanned < future.end:
            unit = future.use(future.scanned)
            is_settled = any(unit in one for one in (self._held, self._reading, self._failed, self._disk.storing))
            is_settled |= future.is_pin and unit in self._disk.held
            if not is_settled and self._sizes[unit] <= self._room:
                return unit
            future.scanned += 1
        return None

    def _made_room(self, unit: int, due: float, now: float) -> list[int] | None:
        """Take out what goes for a unit; None, with nothing taken out, where it has to wait."""
        gone: list[tuple[int, float]] = []
        spared: list[tuple[int, float]] = []  # what is about to be stored goes for want of others only
        missing = self._used + self._sizes[unit] - self._room
        while missing > 0:
            found = self._victims.pop(now)
            if found and len(spared) < 4 * self.limits.writes and self._disk.awaits(found[0]):
                spared.append(found)
                continue
            found = found or (spared.pop() if spared else None)
            if found is not None:
                gone.append(found)
                missing -= self._sizes[found[0]]
            if found is None or found[1] <= due:
                self._put_back([*gone, *spared], now)
                return None
        self._put_back(spared, now)
        for victim, _ in gone:
            self._forget(victim)
        return [victim for victim, _ in gone]

    def _put_back(self, taken: Sequence[tuple[int, float]], now: float) -> None:
        for unit, seconds in taken:
            self._victims.back(unit, now, seconds)

    def _forget(self, unit: int) -> None:
        """Have a unit no more."""
        if unit in self._held:
            del self._held[unit]
            self._used -= self._sizes[unit]
            self._again(unit)

    def _again(self, unit: int) -> None:
        """Look at a unit again that is not where it was."""
        for future in self._futures.values():
            place = future.next_use(unit)
            if place != NEVER:
                future.scanned = min(future.scanned, place)

    def _reorder(self) -> None:
        """Note that what is foreseen has changed."""
        self._victims.reorder()
        self._disk.reorder()

    def _future(self, job: int) -> Future:
        found = self._futures.get(job)
        if found is None:
            raise InternalError("sharing", found=f"job {job}", expected=f"one of {sorted(self._futures)}")
        return found
