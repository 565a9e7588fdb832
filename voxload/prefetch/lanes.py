"""Lanes: accesses that wait to be fetched, in the order of need."""

from __future__ import annotations

import heapq
from collections import defaultdict

from voxload.prefetch.access import Access, Lane, Phase

Entry = tuple[tuple[int, int], int, Access]
"""Key, stamp and access; void once the access has another stamp."""


class Lanes:
    """Queues of accesses, one a lane, and what waits for steps, times and stores.

    An access is in one place at most: entering another one voids its earlier entry.
    """

    def __init__(self) -> None:
        self._heaps: dict[Lane, list[Entry]] = {lane: [] for lane in Lane}
        self._files: dict[int, dict[tuple[int, int], Access]] = {}
        self._lengths = dict.fromkeys(Lane, 0)
        self._stamps = 0
        self._timed: list[tuple[float, tuple[int, int], int, Access]] = []
        self._clocked: list[tuple[int, tuple[int, int], int, Access]] = []
        self._stores: defaultdict[int, list[tuple[int, Access]]] = defaultdict(list)

    def queue(self, access: Access, lane: Lane) -> None:
        """Let an access wait for a seat."""
        self._enter(access, Phase.QUEUED)
        access.lane = lane
        self._lengths[lane] += 1
        heapq.heappush(self._heaps[lane], (access.key, access.stamp, access))
        if lane is Lane.STORAGE:
            self._files.setdefault(access.file, {})[access.key] = access

    def leave(self, access: Access) -> None:
        """Take an access out of wherever it waits."""
        access.stamp = 0
        if access.lane is None:
            return
        self._lengths[access.lane] -= 1
        if access.lane is Lane.STORAGE:
            neighbours = self._files[access.file]
            del neighbours[access.key]
            if not neighbours:
                del self._files[access.file]
        access.lane = None

    def length(self, lane: Lane) -> int:
        """Return how many accesses wait in a lane."""
        return self._lengths[lane]

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

    def first(self, lane: Lane) -> Access | None:
        """Return the access of a lane that is needed first."""
        heap = self._heaps[lane]
        while heap and heap[0][1] != heap[0][2].stamp:
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def members(self, lane: Lane) -> list[Access]:
        """Return what waits in a lane, in no order."""
        return [access for _, stamp, access in self._heaps[lane] if stamp == access.stamp]

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
