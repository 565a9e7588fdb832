"""Simulation of jobs that share a cache: the planner that the service runs, driven in virtual time; pure.

Each job takes what it uses into staging slots, in order, as far ahead as it has slots, computes on one after the other,
and waits where the next one is not complete. A unit that is there is taken in no time: what is asked here is how often
the storage is read and how long jobs wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from voxload.errors import InternalError
from voxload.prefetch.line import Ints
from voxload.prefetch.sharing.events import (
    Answer,
    Began,
    Ended,
    Event,
    Foreseen,
    Reached,
    Read,
    ReadDone,
    Store,
    Stored,
    Wanted,
)
from voxload.prefetch.sharing.limits import SharingLimits
from voxload.prefetch.sharing.planner import SharedPlanner
from voxload.prefetch.simulation.clock import Clock, Shared


@dataclass(frozen=True, slots=True)
class SharedJob:
    """One of the jobs."""

    order: Ints
    """Units of each step, ``(steps, batch)``."""
    compute: float
    """Seconds of a step."""
    begin: float = 0.0
    """When it starts."""
    slots: int = 2
    """Steps that it takes ahead, the one that it computes on included."""
    foresight: int | None = None
    """Steps that it tells of beyond the one at hand, as often as half of them have passed; None for all."""


@dataclass(frozen=True, slots=True)
class SharedStorage:
    """What the service reads from."""

    bandwidth: float
    """Bytes a second, of all reads together."""
    latency: float = 0.0
    """Seconds of a read beyond that."""


@dataclass(frozen=True, slots=True)
class SharedDisk:
    """Where units lie that there is no room for in memory."""

    room: int
    """Bytes."""
    bandwidth: float
    """Bytes a second, of all that is read and stored together."""


@dataclass(frozen=True, slots=True)
class SharedOutcome:
    """What became of it."""

    seconds: float
    """Until the last job ended."""
    storage_bytes: int
    """Read from the storage."""
    disk_bytes: int
    """Read from disk."""
    stalls: tuple[float, ...]
    """Seconds that each job waited."""
    accesses: Ints
    """All uses of all jobs, in the order in which they came."""


def simulate_sharing(
    jobs: Sequence[SharedJob],
    sizes: Ints,
    *,
    room: int,
    storage: SharedStorage,
    limits: SharingLimits,
    disk: SharedDisk | None = None,
) -> SharedOutcome:
    """Return what becomes of jobs that share one cache of `room` bytes in memory for units of such `sizes`."""
    return _World(jobs, sizes, room, storage=storage, limits=limits, disk=disk).run()


@dataclass(slots=True)
class _Running:
    """A job under way."""

    job: SharedJob
    steps: deque[int] = field(default_factory=deque)
    """Uses that each step in the slots still lacks."""
    wanted: dict[int, deque[int]] = field(default_factory=dict)
    """The uses that wait for a unit, by that."""
    taken: int = 0
    """Uses that have been begun."""
    arrived: set[int] = field(default_factory=set)
    """Uses that were taken, beyond `place`."""
    place: int = 0
    told: int = 0
    done: int = 0
    is_computing: bool = False
    waits_since: float | None = None
    stall: float = 0.0


class _World:
    def __init__(
        self,
        jobs: Sequence[SharedJob],
        sizes: Ints,
        room: int,
        *,
        storage: SharedStorage,
        limits: SharingLimits,
        disk: SharedDisk | None,
    ) -> None:
        self._clock, self._storage, self._sizes = Clock(), storage, sizes
        self._channel = Shared(self._clock, lambda _reads, _clients: storage.bandwidth)
        near = disk or SharedDisk(0, 1.0)
        self._disk = Shared(self._clock, lambda _reads, _clients: near.bandwidth)
        self._planner = SharedPlanner(room, disk=near.room, limits=limits)
        self._planner.know(np.arange(len(sizes)), sizes)
        self._jobs = [_Running(job) for job in jobs]
        self._accesses: list[int] = []
        self._read = self._read_near = 0

    def run(self) -> SharedOutcome:
        for number, running in enumerate(self._jobs):
            self._clock.at(running.job.begin, partial(self._begin, number))
        end = 0.0
        while self._clock.advance():
            end = self._clock.now
        if any(running.done < len(running.job.order) for running in self._jobs):
            raise InternalError("simulation", found="a job that waits for ever", remedy="please report it")
        stalls = tuple(running.stall for running in self._jobs)
        return SharedOutcome(end, self._read, self._read_near, stalls, np.array(self._accesses, np.int64))

    def _tell(self, event: Event) -> None:
        for instruction in self._planner.handle(event):
            match instruction:
                case Read(unit, is_near=True):
                    self._read_near += int(self._sizes[unit])
                    self._disk.begin(int(self._sizes[unit]), 0, partial(self._read_done, unit, is_on_disk=True))
                case Read(unit):
                    self._clock.after(self._storage.latency, partial(self._begin_read, unit))
                case Store(unit):
                    self._disk.begin(int(self._sizes[unit]), 0, partial(self._stored, unit))
                case Answer(job, unit, is_there):
                    if not is_there:
                        raise InternalError("simulation", found=f"unit {unit} refused", remedy="give it more room")
                    self._clock.after(0.0, partial(self._came, job, unit))
                case _:
                    pass  # a unit that goes takes no time

    def _begin_read(self, unit: int) -> None:
        self._read += int(self._sizes[unit])
        self._channel.begin(int(self._sizes[unit]), 0, partial(self._read_done, unit, is_on_disk=False))

    def _read_done(self, unit: int, *, is_on_disk: bool) -> None:
        self._tell(ReadDone(self._clock.now, unit, is_kept=True, is_on_disk=is_on_disk))

    def _stored(self, unit: int) -> None:
        self._tell(Stored(self._clock.now, unit, is_kept=True))

    def _begin(self, number: int) -> None:
        running = self._jobs[number]
        self._tell(Began(self._clock.now, number))
        running.waits_since = self._clock.now
        self._foresee(number)
        self._fill(number)

    def _foresee(self, number: int) -> None:
        """Tell of steps that nobody was told of."""
        running, order = self._jobs[number], self._jobs[number].job.order
        ahead = running.job.foresight
        if ahead is not None and running.told - running.done > ahead // 2:
            return
        end = len(order) if ahead is None else min(len(order), running.done + ahead + running.job.slots)
        if end > running.told:
            units = order[running.told : end].ravel()
            place, running.told = running.told * order.shape[1], end
            self._tell(Foreseen(self._clock.now, number, place, units))

    def _fill(self, number: int) -> None:
        """Take what is used next into free slots."""
        running, batch = self._jobs[number], self._jobs[number].job.order.shape[1]
        while len(running.steps) < running.job.slots and running.taken < running.job.order.size:
            running.steps.append(batch)
            for use in range(running.taken, running.taken + batch):
                unit = int(running.job.order.flat[use])
                running.wanted.setdefault(unit, deque()).append(use)
                self._tell(Wanted(self._clock.now, number, unit))
            running.taken += batch

    def _came(self, number: int, unit: int) -> None:
        """Take a unit that is there; where it went meanwhile, it is asked for again."""
        running, batch = self._jobs[number], self._jobs[number].job.order.shape[1]
        if unit not in self._planner.held:
            self._tell(Wanted(self._clock.now, number, unit))
            return
        use = running.wanted[unit].popleft()
        self._accesses.append(unit)
        running.steps[use // batch - running.done] -= 1
        running.arrived.add(use)
        place = running.place
        while place in running.arrived:
            running.arrived.remove(place)
            place += 1
        if place > running.place:
            running.place = place
            self._tell(Reached(self._clock.now, number, place))
        self._compute(number)

    def _compute(self, number: int) -> None:
        running = self._jobs[number]
        if not running.is_computing and running.steps and not running.steps[0]:
            running.is_computing = True
            if running.waits_since is not None:
                running.stall += self._clock.now - running.waits_since
            self._clock.after(running.job.compute, partial(self._computed, number))

    def _computed(self, number: int) -> None:
        running = self._jobs[number]
        running.steps.popleft()
        running.done += 1
        running.is_computing, running.waits_since = False, self._clock.now
        if running.done == len(running.job.order):
            self._tell(Ended(self._clock.now, number))
            return
        self._foresee(number)
        self._fill(number)
        self._compute(number)
