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
    Drop,
    Ended,
    Event,
    Foreseen,
    Instruction,
    Lost,
    Reached,
    Read,
    ReadDone,
    RoomChanged,
    Wanted,
)
from voxload.prefetch.sharing.planner import SharedPlanner, SharingLimits

UNITS = 8


class World:
    """What carries instructions out, and checks each."""

    def __init__(self, sizes: list[int], room: int, limits: SharingLimits) -> None:
        self.planner = SharedPlanner(room, limits=limits)
        self.planner.know(np.arange(len(sizes)), np.array(sizes))
        self.sizes, self.room, self.limits, self.now = sizes, room, limits, 0.0
        self.there: set[int] = set()
        self.reading: set[int] = set()
        self.orders: dict[int, list[int]] = {}
        self.places: dict[int, int] = {}
        self.open: Counter[tuple[int, int]] = Counter()

    def tell(self, event: Event) -> list[Instruction]:
        """Tell the planner what happened, and do what it says."""
        found = self.planner.handle(event)
        for instruction in found:
            match instruction:
                case Read(unit):
                    assert unit not in self.there | self.reading
                    assert self._is_of_use(unit)
                    self.reading.add(unit)
                    assert len(self.reading) <= self.limits.reads
                    assert sum(self.sizes[one] for one in self.there | self.reading) <= self.room
                case Drop(unit):
                    self.there.remove(unit)
                case Answer(job, unit, is_there):
                    assert self.open[job, unit] > 0
                    self.open[job, unit] -= 1
                    assert unit in self.there or not is_there
        self.planner.validate()
        assert set(self.planner.held) == self.there
        return found

    def _is_of_use(self, unit: int) -> bool:
        waited = any(count for (_, one), count in self.open.items() if one == unit)
        return waited or any(unit in order[self.places[job] :] for job, order in self.orders.items())

    def event(self, data: st.DataObject) -> Event | None:
        """Draw what happens next, and note it."""
        self.now += data.draw(st.sampled_from([0.0, 0.1, 1.0, 50.0]))
        job = data.draw(st.integers(0, 2))
        unit = data.draw(st.integers(0, UNITS - 1))
        kind = data.draw(st.sampled_from(["job", "order", "reach", "want", "end", "done", "done", "lost", "room"]))
        known = job in self.orders
        if kind == "job" and not known:
            self.orders[job], self.places[job] = [], 0
            return Began(self.now, job)
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
        if kind == "done" and self.reading:
            unit = data.draw(st.sampled_from(sorted(self.reading)))
            return self.done(unit, is_kept=data.draw(st.booleans()))
        if kind == "lost" and self.there:
            unit = data.draw(st.sampled_from(sorted(self.there)))
            self.there.remove(unit)
            return Lost(self.now, unit)
        if kind == "room":
            self.room = data.draw(st.integers(0, 12))
            return RoomChanged(self.now, self.room)
        return None

    def done(self, unit: int, *, is_kept: bool) -> ReadDone:
        """Note that a read has ended."""
        self.reading.remove(unit)
        if is_kept:
            self.there.add(unit)
        return ReadDone(self.now, unit, is_kept)


@given(data=st.data())
def test_anything_in_any_order(data: st.DataObject) -> None:
    """Never more than the room or so many reads; nothing that is of no use; each who waits is answered, once."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=UNITS, max_size=UNITS))
    limits = SharingLimits(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4)))
    world = World(sizes, data.draw(st.integers(0, 12)), limits)
    for _ in range(data.draw(st.integers(1, 40))):
        event = world.event(data)
        if event is not None:
            world.tell(event)
    while world.reading:
        world.tell(world.done(min(world.reading), is_kept=True))
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
