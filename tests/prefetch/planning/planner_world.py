"""A world in virtual time that carries out the instructions of one planner for each group, and checks each of them."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.prefetch.random_plans import Held
from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import (
    Delivered,
    Drop,
    Event,
    Failed,
    Failure,
    Fetch,
    FetchDone,
    FetchFailed,
    Instruction,
    PeerLost,
    Ready,
    SlotFree,
    SourceKind,
    Store,
    Stored,
    Waited,
    Wake,
)
from voxload.prefetch.line import DISK, MEMORY, Ints, Line
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.planning.access import FetchQueue
from voxload.prefetch.planning.eventlog import EventLog, Logged
from voxload.prefetch.planning.limits import Limits
from voxload.prefetch.planning.planner import Planner

BUSY_EVENTS = 5_000
"""More events than any example needs: a world that gets so far goes round in circles."""

COMPUTED, WAKE = "computed", "wake"


@dataclass(frozen=True)
class Faults:
    """How likely each trouble is; 0 for none."""

    absent: float = 0
    wrong: float = 0
    lost: float = 0
    error: float = 0
    """Of a storage read that fails once."""
    broken: frozenset[int] = frozenset()
    """Samples that the storage cannot read at all."""
    refused: float = 0
    slow: float = 0
    handicap: float = 1.0
    """Of the storage; infinity lets no planner leave its plan for speed."""
    dead: frozenset[int] = frozenset()
    """Groups that serve nothing to others."""
    announced: bool = False
    """Whether the dead are made known."""


@dataclass
class Rank:
    """What one group's rank has, and what happened to it."""

    planner: Planner
    logged: Logged
    plans: list[RankPlan] = field(default_factory=list)
    tiers: dict[int, int] = field(default_factory=dict)
    used: Counter[int] = field(default_factory=Counter)
    slots: defaultdict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    wanted: dict[int, dict[int, int]] = field(default_factory=dict)
    """Samples of each step, by place."""
    fetches: dict[int, Fetch] = field(default_factory=dict)
    stores: dict[int, Store] = field(default_factory=dict)
    errors: set[int] = field(default_factory=set)
    """Tickets of fetches that the storage failed."""
    ready: list[Ready | Failed] = field(default_factory=list)
    """Not yet taken by the consumer."""
    given: list[Ready | Failed] = field(default_factory=list)
    taken: int = -1
    is_computing: bool = False
    was_cut: bool = False
    wake: float = -1.0
    sources: Counter[SourceKind] = field(default_factory=Counter)
    """Blocks that came from each kind of place."""


class World:
    """Ranks of one line, their tiers and the storage; `run` lets them work until nothing happens any more."""

    def __init__(self, line: Line, files: Ints, *, limits: Limits, faults: Faults, seed: int) -> None:
        self.line, self.files, self.limits, self.faults = line, files, limits, faults
        self.random = random.Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, int, Event | str]] = []
        self._count = 0
        self.ranks: list[Rank] = []

    def planner(self, group: int, held: dict[int, int]) -> Planner:
        """Return a new planner."""
        costs = CostModel(handicap=self.faults.handicap, grace=0.0)
        return Planner(self.line, group, limits=self.limits, costs=costs, files=self.files, held=held)

    def start(self, plans: list[list[RankPlan]], held: Held, slots: int) -> None:
        """Make the ranks; `plans` by group and epoch."""
        for group, own in enumerate(plans):
            planner = self.planner(group, held[group])
            rank = Rank(planner, Logged(planner, EventLog()), tiers=dict(held[group]))
            for sample, tier in held[group].items():
                rank.used[tier] += int(self.line.sizes[sample])
            self.ranks.append(rank)
            rank.plans = own
            for plan in own:
                self.extend(rank, plan)
            for slot in range(slots):
                self.at(0.0, group, SlotFree(0.0, slot))
            if self.faults.announced:
                for dead in self.faults.dead - {group}:
                    self.at(self.random.random(), group, PeerLost(0.0, dead))

    @staticmethod
    def extend(rank: Rank, plan: RankPlan) -> None:
        """Give a rank another epoch's plan."""
        rank.logged.extend(plan)
        for number, row in enumerate(plan.samples.tolist(), start=plan.first_step):
            if wanted := {place: sample for place, sample in enumerate(row) if sample >= 0}:
                rank.wanted[number] = wanted

    def cut(self, rank: Rank, step: int) -> None:
        """Let a rank forget what is planned from a step on, as an executor does."""
        rank.logged.cut(step)
        rank.was_cut = True
        rank.wanted = {number: row for number, row in rank.wanted.items() if number < step}
        group = self.ranks.index(rank)
        for one in [one for one in rank.ready if one.step >= step]:
            rank.ready.remove(one)
            rank.given.remove(one)
            rank.slots[one.slot].clear()
            self.at(self.now, group, SlotFree(self.now, one.slot))
        self.at(self.now, group, Waited(self.now))

    def at(self, time: float, group: int, event: Event | str) -> None:
        """Let something happen."""
        heapq.heappush(self._events, (time, self._count, group, event))
        self._count += 1

    def run(self, until: int = BUSY_EVENTS) -> None:
        """Let things happen until nothing is left, or so many did."""
        for _ in range(until):
            if not self._events:
                return
            self.now, _, group, event = heapq.heappop(self._events)
            rank = self.ranks[group]
            if event == COMPUTED:
                rank.is_computing = False
                self._consume(group)
            elif not isinstance(event, str):
                self._tell(group, event)
            elif rank.wake == self.now:  # else something else happened before: it is void
                self._tell(group, Waited(self.now))
        assert until < BUSY_EVENTS, "goes round in circles"

    def _tell(self, group: int, event: Event) -> None:
        rank = self.ranks[group]
        event = type(event)(**{**{name: getattr(event, name) for name in event.__slots__}, "now": self.now})
        waiting = {
            queue: set(map(id, rank.planner._state.queues.members(queue))) for queue in rank.planner._state.most_fetches
        }
        event = self._land(rank, event)
        rank.wake = -1.0
        answer = rank.logged.handle(event)
        rank.planner.validate()
        self._check_starvation(rank, answer, waiting)
        for instruction in answer:
            self._carry_out(group, instruction)
        self._consume(group)

    @staticmethod
    def _check_starvation(rank: Rank, answer: list[Instruction], waiting: dict[FetchQueue, set[int]]) -> None:
        """Nothing that waited before, and still does, is needed earlier than what was issued in its queue."""
        state = rank.planner._state
        for fetch in answer:
            if isinstance(fetch, Fetch):
                flight = state.flights[fetch.ticket]
                assert fetch.parts == tuple(sorted(fetch.parts, key=lambda part: (part.step, part.place)))
                left = [a for a in state.queues.members(flight.queue) if id(a) in waiting[flight.queue]]
                assert all(access.key > flight.accesses[0].key for access in left)

    def _land(self, rank: Rank, event: Event) -> Event:
        """Let the outcome of a fetch or store take effect, as it is when it ends."""
        if isinstance(event, FetchDone):
            fetch = rank.fetches.pop(event.ticket)
            failure = self._outcome(rank, fetch)
            if failure is not None:
                if fetch.source.kind is SourceKind.STORAGE:
                    rank.errors.add(fetch.ticket)
                return FetchFailed(event.now, event.ticket, failure, event.seconds)
            for part in fetch.parts:
                rank.slots[part.slot][part.place] = part.sample
                rank.sources[fetch.source.kind] += 1
        if isinstance(event, Stored):
            tier = rank.stores.pop(event.sample).tier
            if not self._happens(self.faults.refused):
                rank.tiers[event.sample] = tier
                return Stored(event.now, event.sample, is_kept=True)
            rank.used[tier] -= int(self.line.sizes[event.sample])
        return event

    def _happens(self, chance: float) -> bool:
        return self.random.random() < chance

    def _outcome(self, rank: Rank, fetch: Fetch) -> Failure | None:
        faults, samples = self.faults, [part.sample for part in fetch.parts]
        if fetch.source.kind is SourceKind.STORAGE:
            is_broken = any(sample in faults.broken for sample in samples)
            return Failure.ERROR if is_broken or self._happens(faults.error) else None
        assert len(samples) == 1
        if fetch.source.kind is SourceKind.PEER:
            assert fetch.source.group != self.ranks.index(rank)
            if fetch.source.group in faults.dead or self._happens(faults.lost):
                return Failure.LOST
            tiers = self.ranks[fetch.source.group].tiers
            return self._read(samples[0], tiers, None)
        return self._read(samples[0], rank.tiers, MEMORY if fetch.source.kind is SourceKind.MEMORY else DISK)

    def _read(self, sample: int, tiers: dict[int, int], tier: int | None) -> Failure | None:
        if sample not in tiers or (tier is not None and tiers[sample] != tier) or self._happens(self.faults.absent):
            return Failure.ABSENT
        return Failure.WRONG if self._happens(self.faults.wrong) else None

    def _carry_out(self, group: int, instruction: Instruction) -> None:
        rank = self.ranks[group]
        match instruction:
            case Fetch():
                self._fetch(group, rank, instruction)
            case Store(part, tier):
                assert rank.slots[part.slot].get(part.place) == part.sample
                assert part.sample not in rank.tiers
                assert part.sample not in rank.stores
                rank.stores[part.sample] = instruction
                rank.used[tier] += int(self.line.sizes[part.sample])
                room = self.line.rooms[group]
                assert rank.used[tier] <= (room.memory if tier == MEMORY else room.disk)
                self.at(self.now + self._delay(), group, Stored(0.0, part.sample, is_kept=False))
            case Drop(sample):
                rank.used[rank.tiers.pop(sample)] -= int(self.line.sizes[sample])
            case Ready() | Failed():
                self._receive(rank, instruction)
            case Wake(at):
                assert at > self.now
                rank.wake = at
                self.at(at, group, WAKE)

    def _fetch(self, group: int, rank: Rank, fetch: Fetch) -> None:
        for part in fetch.parts:
            assert rank.wanted[part.step][part.place] == part.sample
            assert part.place not in rank.slots[part.slot] or rank.was_cut
            rank.slots[part.slot].pop(part.place, None)
        assert len({self.files[part.sample] for part in fetch.parts}) == 1
        rank.fetches[fetch.ticket] = fetch
        delay = self._delay()
        if fetch.wait > 0 and fetch.parts[0].sample not in self.ranks[fetch.source.group].tiers:
            delay += fetch.wait
        self.at(self.now + delay, group, FetchDone(0.0, fetch.ticket, 1, delay))

    def _delay(self) -> float:
        return self.random.uniform(5, 30) if self._happens(self.faults.slow) else self.random.uniform(0.001, 0.05)

    def _receive(self, rank: Rank, end: Ready | Failed) -> None:
        assert all(before.step < end.step for before in rank.given)
        assert all(fetch_part.slot != end.slot for fetch in rank.fetches.values() for fetch_part in fetch.parts)
        assert all(store.part.slot != end.slot for store in rank.stores.values())
        if isinstance(end, Ready):
            there = rank.slots[end.slot]
            assert {place: there[place] for place in rank.wanted[end.step]} == rank.wanted[end.step]
        else:
            assert end.ticket in rank.errors
            assert self.faults.error or set(rank.wanted[end.step].values()) & self.faults.broken
        rank.ready.append(end)
        rank.given.append(end)

    def _may_start(self, rank: Rank) -> bool:
        """Ranks train in step: none takes a batch before all others took the one before."""
        step = rank.ready[0].step
        return all(other.taken >= max((s for s in other.wanted if s < step), default=-1) for other in self.ranks)

    def _consume(self, group: int) -> None:
        """Let every consumer that is idle take its next batch."""
        for number, rank in sorted(enumerate(self.ranks), key=lambda one: one[0] != group):
            if rank.ready and not rank.is_computing and self._may_start(rank):
                end = rank.ready.pop(0)
                rank.taken, rank.is_computing = end.step, True
                self.at(self.now, number, Delivered(0.0, end.step))
                rank.slots[end.slot].clear()
                delay = self.random.uniform(0, 0.1)
                self.at(self.now + delay, number, SlotFree(0.0, end.slot))
                self.at(self.now + delay, number, COMPUTED)
