"""Schedule: the plans of coming epochs, read step by step."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from voxload.errors import InternalError
from voxload.prefetch.placement import RankPlan

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
