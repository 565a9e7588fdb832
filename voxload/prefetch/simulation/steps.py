"""Steps: the coarse model of time, for runs whose every transfer would be too many events.

Bytes of a step are moved by several things at once: the storage, each rank's link in either direction, the tiers of
each node, the threads that decode. Each works through its own bytes in the order of steps without a pause, from the
moment that a staging slot is free for the step; a step begins when the last of them is done and the step before has
ended. What that leaves out: that several transfers share what one of them waits for, how many fetches a planner has
under way, that a planner takes a block from a tier which the plan has it drop later, and failures. A test says how
close the two models are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from voxload.prefetch.line import DISK, MEMORY, Ints
from voxload.prefetch.placement import Placement
from voxload.prefetch.simulation.ledger import Demand, Ledger, Numbers, demands
from voxload.prefetch.simulation.machine import Machine, NodeTier, Rates, Shares
from voxload.prefetch.simulation.workload import Workload


def simulate_steps(
    machine: Machine,
    workload: Workload,
    placements: Iterable[Placement],
    *,
    slots: int,
    progress: Callable[[int], None],
) -> Ledger:
    """Return what a run of these placements takes; `progress` gets the number of steps done."""
    ledger = Ledger()
    pace = _Pace(machine, workload, slots)
    for epoch, moved, clients in _with_clients(
        _demands(workload, placements), groups=workload.line.groups, slots=slots
    ):
        begin = pace.step(moved, clients)
        ledger.add(moved)
        ledger.step(epoch, begin=begin, end=begin + workload.compute)
        progress(1)
    return ledger


def _demands(workload: Workload, placements: Iterable[Placement]) -> Iterator[tuple[int, Demand]]:
    """Yield the epoch and the demand of every step."""
    for placement in placements:
        for moved in demands(placement, workload):
            yield placement.epoch, moved


def _with_clients(
    demands: Iterable[tuple[int, Demand]], *, groups: int, slots: int
) -> Iterator[tuple[int, Demand, int]]:
    """Yield every step with the number of groups that read the storage while it is fetched.

    A group whose part of the step is done reads for later ones, as many as there are slots.
    """
    ahead: deque[tuple[int, Demand]] = deque()
    reading = np.zeros(groups, np.int64)

    def first() -> tuple[int, Demand, int]:
        epoch, moved = ahead.popleft()
        clients = int(np.count_nonzero(reading))
        np.subtract(reading, moved.read > 0, out=reading)
        return epoch, moved, clients

    for epoch, moved in demands:
        np.add(reading, moved.read > 0, out=reading)
        ahead.append((epoch, moved))
        if len(ahead) == slots:
            yield first()
    while ahead:
        yield first()


@dataclass(slots=True)
class _Pace:
    """When each step can begin."""

    machine: Machine
    workload: Workload
    slots: int
    shares: Shares = field(init=False)
    delivered: Numbers = field(init=False)
    """When the step before each was delivered; 0 for the first."""
    number: int = 0
    """Of the step at hand."""
    storage: float = 0.0
    """When the storage has served all steps so far."""
    ranks: dict[str, Numbers] = field(default_factory=dict)
    """When each thing that moves bytes has done so, for each group."""

    def __post_init__(self) -> None:
        self.shares = Shares(self.machine, self.workload.lines)
        self.delivered = np.zeros(self.workload.steps + 1)

    def step(self, moved: Demand, clients: int) -> float:
        """Return when the next step begins, given how many groups share the storage with it."""
        compute = self.workload.compute
        before = float(self.delivered[self.number])
        ended = before + compute if self.number else 0.0
        free = float(self.delivered[self.number - self.slots + 1]) + compute if self.number >= self.slots else 0.0
        if moved.read.any():
            self.storage = max(self.storage, free) + float(moved.read.sum()) / self.shares.storage(clients, clients)
        fetched = self._fetch(moved, free)
        # What a step keeps is stored once the step before it is delivered, and before its own begins.
        stored = np.maximum(fetched, before) + self._store_seconds(moved)
        begin = max(ended, self.storage, float(stored.max()))
        self.number += 1
        self.delivered[self.number] = begin
        return begin

    def _fetch(self, moved: Demand, free: float) -> Numbers:
        """Return when each group has its batch."""
        machine = self.machine
        link = machine.network.rate
        # A block of a tier is there once its owner has delivered the step before it is ready.
        there = np.maximum(self.delivered[moved.ready], free)
        # Each block is decoded by one thread, those of several steps side by side.
        decoding = np.minimum(moved.requests * self.slots, machine.staging.threads)
        done = [
            self._after(
                "requests",
                moved.requests * (machine.storage.latency / machine.storage.threads) + moved.read / link,
                free,
            ),
            self._after("decode", moved.delivered / np.maximum(1, decoding) / machine.staging.decode, free),
            self._after(
                "in",
                moved.inbound_requests * (machine.network.latency / machine.network.threads)
                + (moved.inbound + moved.read) / link,
                there,
            ),
            self._after("out", moved.outbound.sum(axis=0) / link, free),
            self._after("memory", self._node_seconds(machine.memory, moved, MEMORY), there),
        ]
        if machine.disk:
            done.append(self._after("disk", self._node_seconds(machine.disk, moved, DISK), there))
        fetched: Numbers = np.max(np.stack(done), axis=0)
        return fetched

    def _after(self, name: str, seconds: Numbers, free: Numbers | float) -> Numbers:
        """Add work to what one kind of thing does for each group; nothing waits for a slot that it does not need."""
        before = self.ranks.get(name)
        if before is None:
            before = np.zeros(len(seconds))
        self.ranks[name] = after = np.where(seconds > 0, np.maximum(before, free) + seconds, before)
        return after

    def _node_seconds(self, tier: NodeTier, moved: Demand, kind: int) -> Numbers:
        """Return the seconds in which each group's node reads what it and its peers want of a tier."""
        return self._seconds(moved.own[kind] + moved.outbound[kind], tier.read, tier.threads)

    def _store_seconds(self, moved: Demand) -> Numbers:
        machine = self.machine
        seconds = self._seconds(moved.kept[MEMORY], machine.memory.write, machine.memory.threads)
        if machine.disk:
            seconds = np.maximum(seconds, self._seconds(moved.kept[DISK], machine.disk.write, machine.disk.threads))
        return seconds

    def _seconds(self, nbytes: Ints, rates: Rates, threads: int) -> Numbers:
        """Return, for each group, the seconds in which its node moves the bytes of all groups on it."""
        if not nbytes.any():
            return np.zeros(len(nbytes))
        nodes = np.arange(len(nbytes)) // self.shares.groups_on_node
        by_node = np.bincount(nodes, weights=nbytes)
        busy = np.bincount(nodes, weights=nbytes > 0)
        by_users = [self.shares.tier(rates, max(1, users) * threads) for users in range(int(busy.max()) + 1)]
        rate = np.array(by_users)[busy.astype(np.int64)]
        seconds: Numbers = (by_node / rate)[nodes]
        return seconds
