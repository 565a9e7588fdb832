"""Clock and shared resources: time that passes by events alone."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]
"""What happens at some time."""


class Clock:
    """Virtual seconds; actions due at the same time run in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def at(self, time: float, action: Action) -> None:
        """Plan an action; one for a time that has passed runs now, after those that are due."""
        heapq.heappush(self._due, (max(time, self.now), next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        """Plan an action some seconds from now."""
        self.at(self.now + seconds, action)

    def advance(self) -> bool:
        """Run the next action; False where nothing is planned."""
        if not self._due:
            return False
        self.now, _, action = heapq.heappop(self._due)
        action()
        return True


class Shared:
    """A resource that serves all its transfers at once, by equal shares of its rate (processor sharing).

    Every transfer under way has been given the same bytes since any given moment. So one running sum of bytes given
    to each tells, by the value at which a transfer ends, which ends first: begin and end cost O(log n).

    Parameters
    ----------
    clock
        The time.
    rate
        Bytes per second in total by (transfers, distinct clients) at a time.
    """

    def __init__(self, clock: Clock, rate: Callable[[int, int], float]) -> None:
        self._clock = clock
        self._rate = rate
        self._ends: list[tuple[float, int, int, Action]] = []
        self._clients: Counter[int] = Counter()
        self._numbers = count()
        self._given = 0.0
        self._share = 0.0
        self._since = 0.0
        self._plan = 0

    @property
    def active(self) -> int:
        """Transfers under way."""
        return len(self._ends)

    def begin(self, nbytes: float, client: int, done: Action) -> None:
        """Begin a transfer and run `done` when it ends."""
        self._pass_time()
        heapq.heappush(self._ends, (self._given + nbytes, next(self._numbers), client, done))
        self._clients[client] += 1
        self._plan_next()

    def _pass_time(self) -> None:
        self._given += (self._clock.now - self._since) * self._share
        self._since = self._clock.now

    def _plan_next(self) -> None:
        """Share the rate anew and plan the next end; the plan before is void."""
        self._plan += 1
        if not self._ends:
            self._given = self._share = 0.0
            return
        self._share = self._rate(len(self._ends), len(self._clients)) / len(self._ends)
        seconds = max(0.0, self._ends[0][0] - self._given) / self._share
        plan = self._plan
        self._clock.after(seconds, lambda: self._end(plan))

    def _end(self, plan: int) -> None:
        if plan != self._plan:
            return
        # Rounding must not leave a transfer a fraction of a byte short: the first to end is what the time was for.
        self._given, self._since = max(self._given, self._ends[0][0]), self._clock.now
        ended: list[Action] = []
        while self._ends and self._ends[0][0] <= self._given:
            _, _, client, done = heapq.heappop(self._ends)
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            ended.append(done)
        self._plan_next()
        for done in ended:
            done()


class Pool:
    """A number of threads: what is submitted begins when one of them is free, first come first served."""

    def __init__(self, threads: int) -> None:
        self._free = threads
        self._waiting: list[Callable[[Action], None]] = []
        self._next = 0

    def submit(self, begin: Callable[[Action], None]) -> None:
        """Run `begin` with what it must call when it has ended, now or when a thread is free."""
        if self._free:
            self._free -= 1
            begin(self._end)
        else:
            self._waiting.append(begin)

    def _end(self) -> None:
        if self._next < len(self._waiting):
            begin = self._waiting[self._next]
            self._next += 1
            begin(self._end)
        else:
            self._waiting.clear()
            self._next = 0
            self._free += 1
