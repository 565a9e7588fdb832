"""SharedPlanner: what it promises, whatever happens in whatever order."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import InternalError, UsageError
from voxload.prefetch.sharing.events import (
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
    Reached,
    Read,
    ReadDone,
    RoomChanged,
    Store,
    Stored,
    Wanted,
)
from voxload.prefetch.sharing.limits import SharingLimits
from voxload.prefetch.sharing.planner import SharedPlanner

UNITS = 8
KINDS = ("job", "order", "reach", "want", "end", "done", "stored", "lost", "room", "clear")


class World:
    """What carries instructions out, and checks each."""

    def __init__(self, sizes: list[int], room: int, limits: SharingLimits, *, disk_room: int = 0) -> None:
        self.planner = SharedPlanner(room, disk=disk_room, limits=limits)
        self.planner.know(np.arange(len(sizes)), np.array(sizes))
        self.sizes, self.room, self.limits, self.now = sizes, room, limits, 0.0
        self.disk_room = disk_room
        self.there: set[int] = set()
        self.reading: dict[int, bool] = {}
        self.disk: set[int] = set()
        self.storing: set[int] = set()
        self.orders: dict[int, list[int]] = {}
        self.places: dict[int, int] = {}
        self.open: Counter[tuple[int, int]] = Counter()

    def tell(self, event: Event) -> list[Instruction]:
        """Tell the planner what happened, and do what it says."""
        found = self.planner.handle(event)
        for instruction in found:
            match instruction:
                case Read(unit, is_near):
                    assert unit not in self.there | self.reading.keys()
                    assert self._is_of_use(unit)
                    assert is_near == (unit in self.disk)
                    self.reading[unit] = is_near
                    assert list(self.reading.values()).count(is_near) <= self.limits.reads
                    assert sum(self.sizes[one] for one in self.there | self.reading.keys()) <= self.room
                case Store(unit):
                    assert unit in self.there - self.disk - self.storing
                    self.storing.add(unit)
                    assert len(self.storing) <= self.limits.writes
                    assert self._on_disk() <= self.disk_room
                case Erase(unit):
                    self.disk.remove(unit)
                case Drop(unit):
                    assert unit not in self.storing
                    self.there.remove(unit)
                case Answer(job, unit, is_there):
                    assert self.open[job, unit] > 0
                    self.open[job, unit] -= 1
                    assert unit in self.there or not is_there
        self.planner.validate()
        assert set(self.planner.held) == self.there
        assert set(self.planner.disk.held) == self.disk
        assert self._on_disk() <= self.disk_room
        return found

    def _on_disk(self) -> int:
        return sum(self.sizes[one] for one in self.disk | self.storing)

    def _is_of_use(self, unit: int) -> bool:
        waited = any(count for (_, one), count in self.open.items() if one == unit)
        return waited or any(unit in order[self.places[job] :] for job, order in self.orders.items())

    def event(self, data: st.DataObject) -> Event | None:
        """Draw what happens next, and note it."""
        self.now += data.draw(st.sampled_from([0.0, 0.1, 1.0, 50.0]))
        job = data.draw(st.integers(0, 2))
        unit = data.draw(st.integers(0, UNITS - 1))
        kind = data.draw(st.sampled_from([*KINDS, "done", "stored"]))
        known = job in self.orders
        if kind == "job" and not known:
            self.orders[job], self.places[job] = [], 0
            return Began(self.now, job, is_pin=data.draw(st.booleans()))
        if kind == "order" and known:
            order = self.orders[job]
            place = data.draw(st.integers(self.places[job], len(order)))
            order[place:] = data.draw(st.lists(st.integers(0, UNITS - 1), max_size=10))
            return Foreseen(self.now, job, place, np.array(order[place:], np.int64))
        if kind == "reach" and known:
            self.places[job] = data.draw(st.integers(self.places[job], len(self.orders[job])))
            return Reached(self.now, job, self.places[job])
        if kind == "want" and known:
            self.open[job, unit] += 1
            return Wanted(self.now, job, unit)
        if kind == "end" and known:
            del self.orders[job], self.places[job]
            for pair in [pair for pair in self.open if pair[0] == job]:
                del self.open[pair]
            return Ended(self.now, job)
        return self._happened(kind, data)

    def _happened(self, kind: str, data: st.DataObject) -> Event | None:
        if kind == "done" and self.reading:
            unit = data.draw(st.sampled_from(sorted(self.reading)))
            return self.done(unit, is_kept=data.draw(st.booleans()), is_on_disk=data.draw(st.booleans()))
        if kind == "stored" and self.storing:
            return self.stored(data.draw(st.sampled_from(sorted(self.storing))), is_kept=data.draw(st.booleans()))
        if kind == "lost" and self.there:
            unit = data.draw(st.sampled_from(sorted(self.there)))
            self.there.remove(unit)
            return Lost(self.now, unit)
        if kind == "clear":
            return Cleared(self.now)
        if kind == "room":
            self.room = data.draw(st.integers(0, 12))
            return RoomChanged(self.now, self.room)
        return None

    def done(self, unit: int, *, is_kept: bool, is_on_disk: bool = False) -> ReadDone:
        """Note that a read has ended; where it was removed meanwhile, nothing is found on disk."""
        del self.reading[unit]
        if is_kept:
            self.there.add(unit)
        (self.disk.add if is_on_disk else self.disk.discard)(unit)
        return ReadDone(self.now, unit, is_kept, is_on_disk)

    def stored(self, unit: int, *, is_kept: bool) -> Stored:
        """Note what came of storing a unit."""
        self.storing.remove(unit)
        if is_kept:
            self.disk.add(unit)
        return Stored(self.now, unit, is_kept)


@given(data=st.data())
def test_anything_in_any_order(data: st.DataObject) -> None:
    """Never more than the room or so many reads; nothing that is of no use; each who waits is answered, once."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=UNITS, max_size=UNITS))
    limits = SharingLimits(*(data.draw(st.integers(1, most)) for most in (3, 4, 2)))
    world = World(sizes, data.draw(st.integers(0, 12)), limits, disk_room=data.draw(st.sampled_from([0, 5, 30])))
    for _ in range(data.draw(st.integers(1, 40))):
        event = world.event(data)
        if event is not None:
            world.tell(event)
    if data.draw(st.booleans()):
        world.tell(Draining(world.now))
    while world.reading or world.storing:
        if world.reading:
            world.tell(world.done(min(world.reading), is_kept=True))
        if world.storing:
            world.tell(world.stored(min(world.storing), is_kept=True))
    # A read that ends lets the next one begin: nobody is left to wait.
    assert not any(world.open.values())


def test_one_read_for_all_who_wait() -> None:
    """And they are told in the order in which they asked."""
    world = World([1] * UNITS, 4, SharingLimits())
    for job in range(3):
        world.orders[job], world.places[job] = [], 0
        world.tell(Began(0.0, job))
        world.open[job, 5] += 1
        assert world.tell(Wanted(0.0, job, 5)) == ([] if job else [Read(5)])
    assert world.tell(world.done(5, is_kept=True)) == [Answer(job, 5, is_there=True) for job in range(3)]


@pytest.mark.parametrize("is_other_there", [False, True])
def test_what_is_used_last_by_all_goes(is_other_there: bool) -> None:
    """Not what is used last by one."""
    world = World([1] * UNITS, 2, SharingLimits(reads=1))
    world.orders, world.places = {0: [0, 1, 5, 1, 0]}, {0: 0}
    world.tell(Began(0.0, 0))
    world.tell(Foreseen(0.0, 0, 0, np.array(world.orders[0])))
    world.tell(world.done(0, is_kept=True))
    world.tell(world.done(1, is_kept=True))
    if is_other_there:
        world.orders[1], world.places[1] = [0], 0
        world.tell(Began(0.0, 1))
        world.tell(Foreseen(0.0, 1, 0, np.array([0])))
    world.places[0] = 2
    assert world.tell(Reached(1.0, 0, 2)) == [Drop(1 if is_other_there else 0), Read(5)]


def test_what_is_lost_while_it_is_stored_is_read_when_that_has_ended() -> None:
    """Else it would go from memory, or lie on disk, in two states at once."""
    world = World([1] * UNITS, 4, SharingLimits(), disk_room=5)
    world.orders[0], world.places[0] = [3], 0
    world.tell(Began(0.0, 0))
    assert world.tell(Foreseen(0.0, 0, 0, np.array([3]))) == [Read(3)]
    assert world.tell(world.done(3, is_kept=True)) == [Store(3)]
    world.there.remove(3)
    assert world.tell(Lost(1.0, 3)) == []
    world.open[0, 3] += 1
    assert world.tell(Wanted(1.0, 0, 3)) == []
    assert world.tell(world.stored(3, is_kept=True)) == [Read(3, is_near=True)]
    assert world.tell(world.done(3, is_kept=True, is_on_disk=True)) == [Answer(0, 3, is_there=True)]


def test_what_cannot_be_read_is_not_read_ahead_again() -> None:
    """Who wants it is told, and it is tried again for them."""
    world = World([1] * UNITS, 4, SharingLimits())
    world.orders[0], world.places[0] = [3, 4], 0
    world.tell(Began(0.0, 0))
    assert world.tell(Foreseen(0.0, 0, 0, np.array([3, 4]))) == [Read(3), Read(4)]
    assert world.tell(world.done(3, is_kept=False)) == []
    world.open[0, 3] += 1
    assert world.tell(Wanted(1.0, 0, 3)) == [Read(3)]
    assert world.tell(world.done(3, is_kept=False)) == [Answer(0, 3, is_there=False)]


def test_what_does_not_fit_is_refused_at_once() -> None:
    """And never read ahead."""
    world = World([9] * UNITS, 4, SharingLimits())
    world.orders[0], world.places[0] = [3], 0
    world.tell(Began(0.0, 0))
    assert world.tell(Foreseen(0.0, 0, 0, np.array([3]))) == []
    world.open[0, 3] += 1
    assert world.tell(Wanted(0.0, 0, 3)) == [Answer(0, 3, is_there=False)]


def world_of(order: list[int], room: int, *, disk_room: int, is_pin: bool = False) -> World:
    """Return one with a job that foresees an order, all of whose first reads are done."""
    world = World([1] * UNITS, room, SharingLimits(), disk_room=disk_room)
    world.orders[0], world.places[0] = order, 0
    world.tell(Began(0.0, 0, is_pin=is_pin))
    world.tell(Foreseen(0.0, 0, 0, np.array(order)))
    settle(world)
    return world


def settle(world: World) -> None:
    """Let all end that is under way, and what it lets begin."""
    while world.reading or world.storing:
        if world.reading:
            world.tell(world.done(min(world.reading), is_kept=True, is_on_disk=min(world.reading) in world.disk))
        if world.storing:
            world.tell(world.stored(min(world.storing), is_kept=True))


def test_what_is_used_again_is_read_from_disk() -> None:
    """Once it was read from the storage it lies there, until what is used sooner needs its room."""
    world = world_of([0, 1, 2, 3] * 3, 2, disk_room=4)
    from_storage: list[int] = []
    for place in range(1, 13):
        world.places[0] = place
        steps = world.tell(Reached(float(place), 0, place))
        while steps or world.reading or world.storing:
            from_storage += [step.unit for step in steps if isinstance(step, Read) and not step.is_near]
            if world.storing:
                steps = world.tell(world.stored(min(world.storing), is_kept=True))
            elif world.reading:
                unit = min(world.reading)
                steps = world.tell(world.done(unit, is_kept=True, is_on_disk=unit in world.disk))
            else:
                steps = []
    assert from_storage == [2, 3]  # the first two were read before
    assert world.disk == {0, 1, 2, 3}


def test_what_lies_on_disk_goes_for_what_is_used_sooner() -> None:
    """And stays where all others are used later."""
    world = world_of([0, 1, 2, 0, 1], 3, disk_room=2)
    assert world.disk == {0, 1}
    assert world.there == {0, 1, 2}


@pytest.mark.parametrize("disk_room", [0, 3])
def test_pins_keep_units_near(disk_room: int) -> None:
    """In memory, or on disk where there is one: what another job uses takes their room in memory then."""
    world = world_of([0, 1, 2, 3, 4], 2, disk_room=disk_room, is_pin=True)
    assert len(world.there | world.disk) == (2 if disk_room == 0 else 5)
    pinned = world.there | world.disk
    world.orders[1], world.places[1] = [7, 7], 0
    world.tell(Began(1.0, 1))
    world.tell(Foreseen(1.0, 1, 0, np.array([7, 7])))
    settle(world)
    assert pinned <= world.there | world.disk


def test_clearing_leaves_what_is_of_use() -> None:
    """To a job or a pin, in memory or on disk."""
    world = world_of([0, 1, 2, 3], 4, disk_room=4)
    world.orders[1], world.places[1] = [3], 0
    world.tell(Began(1.0, 1, is_pin=True))
    world.tell(Foreseen(1.0, 1, 0, np.array([3])))
    world.places[0] = 2
    world.tell(Reached(2.0, 0, 2))
    settle(world)
    world.tell(Cleared(3.0))
    assert world.there == world.disk == {2, 3}
    del world.orders[0], world.places[0]
    world.tell(Ended(4.0, 0))
    world.tell(Cleared(5.0))
    assert world.there | world.disk == {3}


def test_draining_stores_what_is_in_memory() -> None:
    """Reads nothing more, and tells so whoever waits."""
    world = world_of([], 4, disk_room=8)
    world.open[0, 5] += 1
    world.tell(Wanted(1.0, 0, 5))
    world.tell(world.done(5, is_kept=True))
    world.tell(world.stored(5, is_kept=False))
    world.open[0, 6] += 1
    assert Read(6) in world.tell(Wanted(2.0, 0, 6))
    world.open[0, 7] += 1
    world.tell(Wanted(2.0, 0, 7))
    assert Store(5) in world.tell(Draining(3.0))
    settle(world)
    assert world.disk == world.there == {5, 6, 7}
    world.open[0, 4] += 1
    assert world.tell(Wanted(4.0, 0, 4)) == [Answer(0, 4, is_there=False)]
    assert world.planner.disk.is_settled


def test_what_cannot_be() -> None:
    """Is an error of whoever drives it."""
    planner = SharedPlanner(4, limits=SharingLimits())
    planner.handle(Began(0.0, 1))
    for wrong in (
        Began(0.0, 1),
        Reached(0.0, 2, 0),
        Wanted(0.0, 1, 5),
        ReadDone(0.0, 5, is_kept=True),
        Foreseen(0.0, 1, 0, np.array([7])),
    ):
        with pytest.raises(InternalError):
            planner.handle(wrong)
    with pytest.raises(UsageError, match="expected 1 or more of each"):
        SharingLimits(reads=0)
