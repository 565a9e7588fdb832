"""Rank: one group's planner in a simulation, its tiers, and what does as it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from voxload.errors import InternalError
from voxload.prefetch.events import (
    Drop,
    Event,
    Failed,
    Failure,
    Fetch,
    FetchDone,
    FetchFailed,
    Instruction,
    Ready,
    SlotFree,
    SourceKind,
    Store,
    Stored,
    Waited,
    Wake,
)
from voxload.prefetch.line import DISK, MEMORY, Room
from voxload.prefetch.simulation.clock import Action
from voxload.prefetch.simulation.cluster import TIERS, Cluster, PeerTransfer
from voxload.prefetch.simulation.ledger import Ledger
from voxload.prefetch.simulation.workload import Workload


@dataclass(frozen=True, slots=True)
class _Kept:
    tier: int
    nbytes: int


@dataclass(slots=True)
class RankTiers:
    """Tiers with hard capacities; what is being written has its room already."""

    room: Room
    _used: dict[int, int] = field(default_factory=lambda: {MEMORY: 0, DISK: 0})
    _kept: dict[int, _Kept] = field(default_factory=dict)
    _waiting: dict[int, list[Action]] = field(default_factory=dict)

    def tier_of(self, sample: int) -> int | None:
        """Return the tier that has a block, or None."""
        kept = self._kept.get(sample)
        return None if kept is None else kept.tier

    def reserve(self, tier: int, nbytes: int) -> bool:
        """Take room for a block, if there is any."""
        if self._used[tier] + nbytes > (self.room.memory if tier == MEMORY else self.room.disk):
            return False
        self._used[tier] += nbytes
        return True

    def put(self, sample: int, tier: int, nbytes: int) -> None:
        """Have a block in the room that was reserved for it, and tell who waits for it."""
        self._kept[sample] = _Kept(tier, nbytes)
        for told in self._waiting.pop(sample, []):
            told()

    def drop(self, sample: int) -> None:
        """Forget a block; nothing happens where it is not there."""
        kept = self._kept.pop(sample, None)
        if kept is not None:
            self._used[kept.tier] -= kept.nbytes

    def tell(self, sample: int, told: Action) -> None:
        """Call back when a block comes."""
        self._waiting.setdefault(sample, []).append(told)


class Plans(Protocol):
    """What is driven: `voxload.prefetch.planning.planner.Planner`."""

    def handle(self, event: Event) -> Sequence[Instruction]:
        """Take in what happened and say what to do."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """What all ranks of a line share."""

    workload: Workload
    cluster: Cluster
    shelves: Sequence[RankTiers]
    """One for each group."""
    ledger: Ledger
    ready: Callable[[int], None]
    """Called when a rank has the batch of a step."""

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.cluster.clock.now


@dataclass(slots=True)
class Rank:
    """Passes events to a planner and carries its instructions out in virtual time."""

    group: int
    planner: Plans
    world: World
    _slots: int = 0
    _events: int = 0

    def free_slot(self) -> None:
        """Give the planner a slot; each has a new number, as the executor's have."""
        self._slots += 1
        self.handle(SlotFree(self.world.now, self._slots))

    def handle(self, event: Event) -> None:
        """Tell the planner, and do what it says; nothing that it asks for ends before this returns."""
        self._events += 1
        for instruction in self.planner.handle(event):
            match instruction:
                case Fetch():
                    self._fetch(instruction)
                case Store():
                    self._store(instruction)
                case Drop(sample):
                    self._shelf.drop(sample)
                case Ready(step, _):
                    self.world.cluster.clock.after(0.0, partial(self.world.ready, step))
                case Wake(at):
                    self._wake(at)
                case Failed(step, _, _):
                    raise InternalError("simulation", found=f"step {step} failed", remedy="please report it")

    @property
    def _shelf(self) -> RankTiers:
        return self.world.shelves[self.group]

    def _fetch(self, fetch: Fetch) -> None:
        workload, cluster = self.world.workload, self.world.cluster
        samples = [part.sample for part in fetch.parts]
        nbytes = int(workload.line.sizes[samples].sum())
        begin = self.world.now

        def done(source: SourceKind, moved: int) -> Action:
            def act() -> None:
                self.world.ledger.fetched(source, moved)
                self.handle(FetchDone(self.world.now, fetch.ticket, nbytes, self.world.now - begin))

            return act

        def missed() -> None:
            self.handle(FetchFailed(self.world.now, fetch.ticket, Failure.ABSENT, self.world.now - begin))

        match fetch.source.kind:
            case SourceKind.STORAGE:
                read = int(workload.read_sizes[samples].sum())
                cluster.read(self.group, read, nbytes, done(SourceKind.STORAGE, read))
            case SourceKind.PEER:
                shelf = self.world.shelves[fetch.source.group]
                way = PeerTransfer(fetch.source.group, nbytes, done(SourceKind.PEER, nbytes), missed)
                cluster.peer(self.group, _PeerRequest(shelf, samples, self.world, fetch.wait).ask, way)
            case kind:
                tier = MEMORY if kind is SourceKind.MEMORY else DISK
                if all(self._shelf.tier_of(sample) == tier for sample in samples):
                    cluster.own(self.group, tier, nbytes, done(kind, nbytes))
                else:
                    cluster.clock.after(0.0, missed)

    def _store(self, store: Store) -> None:
        sample = store.part.sample
        nbytes = int(self.world.workload.line.sizes[sample])

        def stored() -> None:
            self.world.ledger.stored[TIERS[store.tier]] += nbytes
            self._shelf.put(sample, store.tier, nbytes)
            self.handle(Stored(self.world.now, sample, is_kept=True))

        if self._shelf.tier_of(sample) is not None:
            self.world.cluster.clock.after(0.0, lambda: self.handle(Stored(self.world.now, sample, is_kept=True)))
        elif self._shelf.reserve(store.tier, nbytes):
            self.world.cluster.store(self.group, store.tier, nbytes, stored)
        else:
            self.world.cluster.clock.after(0.0, lambda: self.handle(Stored(self.world.now, sample, is_kept=False)))

    def _wake(self, at: float) -> None:
        events = self._events

        def act() -> None:
            if events == self._events:
                self.handle(Waited(self.world.now))

        self.world.cluster.clock.at(at, act)


@dataclass(slots=True)
class _PeerRequest:
    """Asks a peer for blocks, and waits a while for those that are to come."""

    shelf: RankTiers
    samples: Sequence[int]
    world: World
    wait: float
    _is_answered: bool = False

    def ask(self, answer: Callable[[int | None], None]) -> None:
        """Answer with the tier of the first block once all are there, or with None when that takes too long."""
        if self.wait > 0:
            self.world.cluster.clock.after(self.wait, lambda: self._answer(answer, None))
        self._look(answer)

    def _look(self, answer: Callable[[int | None], None]) -> None:
        missing = [sample for sample in self.samples if self.shelf.tier_of(sample) is None]
        if not missing:
            self._answer(answer, self.shelf.tier_of(self.samples[0]))
        elif self.wait > 0:
            self.shelf.tell(missing[0], lambda: self._look(answer))
        else:
            self._answer(answer, None)

    def _answer(self, answer: Callable[[int | None], None], tier: int | None) -> None:
        if not self._is_answered:
            self._is_answered = True
            answer(tier)
