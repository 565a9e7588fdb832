"""State: all that a planner knows; its parts change it, `check` reads it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping

from voxload.errors import InternalError
from voxload.prefetch.line import Line
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.planning.access import FetchQueue, FetchQueues, Flight, Step
from voxload.prefetch.planning.holdings import Holdings
from voxload.prefetch.planning.limits import Limits

Row = list[tuple[int, int, int, int, int]]
"""Of each block of a step: place, sample, owner, ready, keep."""


class Schedule:
    """What one rank's plans say, from the first step that was not yet delivered."""

    def __init__(self) -> None:
        # Each with the step behind its last one, and which of its steps have blocks.
        self._plans: deque[tuple[RankPlan, int, list[bool]]] = deque()
        self._drops: list[tuple[int, int, int]] = []  # a heap of step, order, sample
        self._count = 0
        self.end: int | None = None
        """The step behind the last planned one; None before the first plan."""

    def extend(self, plan: RankPlan) -> None:
        """Append a plan; steps between the last one and it are empty."""
        if self.end is not None and plan.first_step < self.end:
            raise InternalError(
                f"plan of epoch {plan.epoch}", found=f"first step {plan.first_step}", expected=f"{self.end} or later"
            )
        self.end = plan.first_step + len(plan.samples)
        self._plans.append((plan, self.end, [max(row, default=-1) >= 0 for row in plan.samples.tolist()]))
        for step, sample in zip(plan.drop_steps.tolist(), plan.drop_samples.tolist(), strict=True):
            heapq.heappush(self._drops, (step, self._count, sample))
            self._count += 1

    def cut(self, step: int) -> None:
        """Forget everything from a step on."""
        if self.end is None or step >= self.end:
            return
        self._plans = deque((plan, min(stop, step), full) for plan, stop, full in self._plans if plan.first_step < step)
        self._drops = [drop for drop in self._drops if drop[0] < step]
        heapq.heapify(self._drops)
        self.end = step

    def row(self, step: int) -> Row:
        """Return the blocks of a step; empty where this rank has no such step."""
        for plan, stop, _ in self._plans:
            if plan.first_step <= step < stop:
                at = step - plan.first_step
                columns = (plan.samples, plan.owner, plan.ready, plan.keep)
                cells = zip(*(column[at].tolist() for column in columns), strict=True)
                return [(place, *cell) for place, cell in enumerate(cells) if cell[0] >= 0]
        return []

    def is_empty(self, step: int) -> bool:
        """Tell whether a step has no block on this rank: it is never delivered."""
        for plan, stop, full in self._plans:
            if plan.first_step <= step < stop:
                return not full[step - plan.first_step]
        return True

    def drops(self, step: int) -> Iterator[tuple[int, int]]:
        """Give, and forget, the steps and samples of drops that come no later than a step."""
        while self._drops and self._drops[0][0] <= step:
            at, _, sample = heapq.heappop(self._drops)
            yield at, sample

    def forget(self, step: int) -> None:
        """Let go of plans that end before a step."""
        while self._plans and self._plans[0][1] <= step:
            self._plans.popleft()


class Trust:
    """Counts the bad answers of peers; one that is distrusted stays so, for nothing tells that it was cured."""

    def __init__(self, strikes: int) -> None:
        self._limit = strikes
        self._strikes: dict[int, int] = {}
        self.lost: set[int] = set()
        """Groups that are asked for nothing more."""

    def good(self, group: int) -> None:
        """Note a good answer: only bad ones in a row count."""
        self._strikes.pop(group, None)

    def strike(self, group: int) -> bool:
        """Note a bad answer; True where it was one too many."""
        self._strikes[group] = self._strikes.get(group, 0) + 1
        return self._strikes[group] >= self._limit and self.lose(group)

    def lose(self, group: int) -> bool:
        """Distrust a peer; False where it was distrusted before."""
        is_news = group not in self.lost
        self.lost.add(group)
        return is_news


class PlannerState:
    """What one planner knows of steps, slots, fetches, its own tiers and its peers."""

    def __init__(self, line: Line, group: int, *, limits: Limits, held: Mapping[int, int]) -> None:
        self.group = group
        self.limits = limits
        self.most_fetches = {
            FetchQueue.STORAGE: limits.storage,
            FetchQueue.PEER: limits.peer,
            FetchQueue.AWAITED: limits.awaited,
            FetchQueue.LOCAL: limits.local,
        }
        self.taken = dict.fromkeys(FetchQueue, 0)
        """Seats of each queue that are taken."""
        self.holdings = Holdings(line, group, held)
        self.schedule = Schedule()
        self.queues = FetchQueues()
        self.trust = Trust(limits.strikes)
        self.steps: dict[int, Step] = {}
        """Those being filled, in order."""
        self.flights: dict[int, Flight] = {}
        """Fetches under way, by ticket."""
        self.free: deque[int] = deque()
        """Slots that wait for a step."""
        self.draining: dict[int, Step] = {}
        """By slot: steps that were cut while something was under way."""
        self.out: deque[int] = deque()
        """Steps that are ready and not yet delivered, in order."""
        self.next = 0
        """The step that the next slot is for."""
        self.clock: int | None = None
        """The last step delivered, or before the first one; empty ones count. None before the first plan."""

    @property
    def now_at(self) -> int:
        """The last step delivered; -1 before the first plan."""
        return -1 if self.clock is None else self.clock

    def free_fetches(self, queue: FetchQueue) -> int:
        """Return how many more fetches may be under way."""
        return self.most_fetches[queue] - self.taken[queue]

    def is_at_hand(self, step: Step) -> bool:
        """Tell whether the consumer may be waiting for a step."""
        return step.number == self.now_at + 1

    def drain(self, step: Step) -> None:
        """Take back the slot of a step that was cut, when nothing is under way there."""
        if step.busy == 0:
            del self.draining[step.slot]
            self.free.append(step.slot)
