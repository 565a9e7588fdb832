"""Accesses: the blocks that are to come, step by step, in the queues where they wait to be fetched."""

from __future__ import annotations

import enum
import heapq
from collections import defaultdict
from dataclasses import dataclass, field

from voxload.prefetch.events import Part, Source


class FetchQueue(enum.IntEnum):
    """What fetches queue for: each has its own number of fetches under way at once."""

    LOCAL = 0
    """This rank's own memory and disk."""
    PEER = 1
    AWAITED = 2
    """Peers that may have to wait for the block."""
    STORAGE = 3


class Phase(enum.Enum):
    """How far an access has come."""

    QUEUED = "queued"
    """In a queue."""
    PARKED = "parked"
    """Waits for a time, for a step, or for a store of this rank's own."""
    FLYING = "flying"
    """Its fetch is under way."""
    THERE = "there"
    FAILED = "failed"
    """No place has it, the storage included."""


@dataclass(slots=True, eq=False)
class Access:
    """One block of one batch."""

    step: Step
    place: int
    sample: int
    owner: int
    """As planned."""
    ready: int
    keep: int
    file: int
    """What it can be fetched along with."""
    phase: Phase = Phase.PARKED
    stamp: int = 0
    """Which entry in a queue is its own; those with another stamp are void."""
    queue: FetchQueue | None = None
    """Where it is queued."""
    refused: set[Source] = field(default_factory=set)
    """Places that are not asked for it again."""
    wrongs: int = 0
    absent_since: float | None = None
    """When a peer first said that it has not got the block."""
    is_alone: bool = False
    """Whether it is fetched by itself, because a fetch of several failed."""
    ticket: int = -1
    """Of the fetch that failed for good."""
    is_kept: bool = False
    """Whether nothing is left to be stored of it."""

    @property
    def key(self) -> tuple[int, int]:
        """Order of need: step, then place."""
        return self.step.number, self.place

    @property
    def part(self) -> Part:
        """The block and where it goes, as instructions name it."""
        return Part(self.step.number, self.place, self.sample, self.step.slot, is_stored=not self.is_kept)


@dataclass(slots=True, eq=False)
class Step:
    """One batch that is being filled."""

    number: int
    slot: int
    accesses: list[Access] = field(default_factory=list)
    missing: int = 0
    """Blocks that are neither there nor failed."""
    to_keep: int = 0
    """Blocks that are yet to be stored."""
    busy: int = 0
    """Fetches into the slot and stores out of it that are under way."""
    is_cut: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.missing == 0 and self.to_keep == 0

    @property
    def failure(self) -> int:
        """Ticket of the first block that failed for good; -1: all are there."""
        return next((access.ticket for access in self.accesses if access.phase is Phase.FAILED), -1)


@dataclass(frozen=True, slots=True)
class Flight:
    """A fetch under way."""

    source: Source
    queue: FetchQueue
    accesses: tuple[Access, ...]
    nbytes: int
    wait: float
    since: float


Entry = tuple[tuple[int, int], int, Access]
"""Key, stamp and access; void once the access has another stamp."""


class FetchQueues:
    """Queues of accesses, one a queue, and what waits for steps, times and stores.

    An access is in one place at most: entering another one voids its earlier entry.
    """

    def __init__(self) -> None:
        self._heaps: dict[FetchQueue, list[Entry]] = {queue: [] for queue in FetchQueue}
        self._files: dict[int, dict[tuple[int, int], Access]] = {}
        self._lengths = dict.fromkeys(FetchQueue, 0)
        self._stamps = 0
        self._timed: list[tuple[float, tuple[int, int], int, Access]] = []
        self._clocked: list[tuple[int, tuple[int, int], int, Access]] = []
        self._stores: defaultdict[int, list[tuple[int, Access]]] = defaultdict(list)

    def enqueue(self, access: Access, queue: FetchQueue) -> None:
        """Let an access wait to be fetched."""
        self._enter(access, Phase.QUEUED)
        access.queue = queue
        self._lengths[queue] += 1
        heapq.heappush(self._heaps[queue], (access.key, access.stamp, access))
        if queue is FetchQueue.STORAGE:
            self._files.setdefault(access.file, {})[access.key] = access

    def leave(self, access: Access) -> None:
        """Take an access out of wherever it waits."""
        access.stamp = 0
        if access.queue is None:
            return
        self._lengths[access.queue] -= 1
        if access.queue is FetchQueue.STORAGE:
            neighbours = self._files[access.file]
            del neighbours[access.key]
            if not neighbours:
                del self._files[access.file]
        access.queue = None

    def length(self, queue: FetchQueue) -> int:
        """Return how many accesses wait in a queue."""
        return self._lengths[queue]

    def park_until(self, access: Access, at: float) -> None:
        """Let an access wait for a time."""
        self._enter(access, Phase.PARKED)
        heapq.heappush(self._timed, (at, access.key, access.stamp, access))

    def park_for_step(self, access: Access, step: int) -> None:
        """Let an access wait until a step was delivered."""
        self._enter(access, Phase.PARKED)
        heapq.heappush(self._clocked, (step, access.key, access.stamp, access))

    def park_for_store(self, access: Access) -> None:
        """Let an access wait until its block was stored, or was not."""
        self._enter(access, Phase.PARKED)
        self._stores[access.sample].append((access.stamp, access))

    def _enter(self, access: Access, phase: Phase) -> None:
        self.leave(access)
        self._stamps += 1
        access.stamp = self._stamps
        access.phase = phase

    def first(self, queue: FetchQueue) -> Access | None:
        """Return the access of a queue that is needed first."""
        heap = self._heaps[queue]
        while heap and heap[0][1] != heap[0][2].stamp:
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def members(self, queue: FetchQueue) -> list[Access]:
        """Return what waits in a queue, in no order."""
        return [access for _, stamp, access in self._heaps[queue] if stamp == access.stamp]

    def neighbours(self, access: Access, last_step: int) -> list[Access]:
        """Return what waits for the storage behind an access, in the same file, up to a step; needed first, first."""
        waiting = self._files.get(access.file, {})
        keys = sorted(key for key in waiting if key > access.key and key[0] <= last_step)
        return [waiting[key] for key in keys if not waiting[key].is_alone]

    def at_time(self, now: float) -> list[Access]:
        """Take out what waited for a time that has come."""
        released = []
        while self._timed and self._timed[0][0] <= now:
            released.append(heapq.heappop(self._timed)[2:])
        return [access for stamp, access in released if stamp == access.stamp]

    def next_time(self) -> float | None:
        """Return the earliest time that something waits for."""
        while self._timed and self._timed[0][2] != self._timed[0][3].stamp:
            heapq.heappop(self._timed)
        return self._timed[0][0] if self._timed else None

    def at_step(self, clock: int) -> list[Access]:
        """Take out what waited for a step that was delivered."""
        released = []
        while self._clocked and self._clocked[0][0] <= clock:
            released.append(heapq.heappop(self._clocked)[2:])
        return [access for stamp, access in released if stamp == access.stamp]

    def at_store(self, sample: int) -> list[Access]:
        """Take out what waited for a block to be stored."""
        return [access for stamp, access in self._stores.pop(sample, ()) if stamp == access.stamp]
