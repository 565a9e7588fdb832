"""Schedule: when the stages of a pipeline compute, and when the last of them has done its step; pure.

Forward and backward passes of microbatches alternate as in 1F1B (Narayanan et al., PipeDream, SOSP 2019), in the order
of `torch.distributed.pipelining.Schedule1F1B`. Stages whose ranks share cores are as much faster while others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

Slowdown = Callable[[int], float]
"""How many times as long a stage computes while so many of a pipeline's stages do, itself included."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of one microbatch through one stage."""

    computing: float
    """Seconds, by itself."""
    exchanging: float = 0.0
    """Seconds of messages and sums of its own ranks, during which it computes nothing."""


@dataclass(frozen=True, slots=True)
class StagePasses:
    """What one stage does with each microbatch."""

    forward: Pass
    backward: Pass
    sending: float
    """Seconds that what it gives takes to the next stage, and its gradient from there."""


Task = tuple[bool, int]
"""Whether a pass is forward, and the microbatch."""


def in_flight(stage: int, stages: int, microbatches: int) -> int:
    """Return of how many microbatches a stage keeps what their backward passes need, at most."""
    return min(microbatches, stages - stage)


def order(stage: int, stages: int, microbatches: int) -> list[Task]:
    """Return the passes of a stage, in order.

    >>> ["FB"[not forward] + str(number) for forward, number in order(1, 3, 4)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'F3', 'B2', 'B3']
    """
    first = in_flight(stage, stages, microbatches)
    tasks = [(True, number) for number in range(first)]
    for number in range(microbatches):
        tasks.append((False, number))
        if first + number < microbatches:
            tasks.append((True, first + number))
    return tasks


def run(stages: Sequence[StagePasses], microbatches: int, slowdown: Slowdown) -> list[float]:
    """Return when each stage has done its last pass, in seconds from the beginning of the step.

    Parameters
    ----------
    stages
        In order.
    microbatches
        Of a step.
    slowdown
        What stages lose that compute at once.
    """
    return _Run(stages, microbatches, slowdown).ends()


class _Run:
    """One step, from one event to the next."""

    def __init__(self, stages: Sequence[StagePasses], microbatches: int, slowdown: Slowdown) -> None:
        count = len(stages)
        self._stages, self._slowdown = stages, slowdown
        self._tasks = [order(stage, count, microbatches) for stage in range(count)]
        self._next = [0] * count
        self._left: list[float | None] = [None] * count
        """Seconds of computing that are left of the pass at work, by stage; None where none is."""
        self._free = [0.0] * count
        """When a stage may begin its next pass, by stage."""
        self._done: dict[tuple[int, Task], float] = {}

    def ends(self) -> list[float]:
        """See run."""
        clock = 0.0
        while any(place < len(tasks) for place, tasks in zip(self._next, self._tasks, strict=True)):
            later = inf
            for stage in range(len(self._stages)):
                if self._left[stage] is None and self._next[stage] < len(self._tasks[stage]):
                    begin = max(self._free[stage], self._arrival(stage, self._tasks[stage][self._next[stage]]))
                    if begin <= clock:
                        self._left[stage] = self._pass(stage).computing
                    else:
                        later = min(later, begin)
            working = [stage for stage, left in enumerate(self._left) if left is not None]
            factor = self._slowdown(len(working)) if working else 1.0
            until = min([later, *(clock + (self._left[stage] or 0.0) * factor for stage in working)])
            for stage in working:
                left = (self._left[stage] or 0.0) - (until - clock) / factor
                self._left[stage] = max(left, 0.0)
            clock = until
            for stage in working:
                if (self._left[stage] or 0.0) <= 1e-12 * max(clock, 1.0):
                    self._finish(stage, clock)
        return list(self._free)

    def _arrival(self, stage: int, task: Task) -> float:
        """Return when all is there that a pass needs; infinity while nobody can say."""
        forward, number = task
        if forward:
            if not stage:
                return 0.0
            return self._done.get((stage - 1, task), inf) + self._stages[stage - 1].sending
        own = self._done[stage, (True, number)]  # in order: its forward pass is behind it
        if stage == len(self._stages) - 1:
            return own
        return self._done.get((stage + 1, task), inf) + self._stages[stage].sending

    def _pass(self, stage: int) -> Pass:
        forward, _ = self._tasks[stage][self._next[stage]]
        return self._stages[stage].forward if forward else self._stages[stage].backward

    def _finish(self, stage: int, clock: float) -> None:
        end = clock + self._pass(stage).exchanging
        self._done[stage, self._tasks[stage][self._next[stage]]] = end
        self._next[stage] += 1
        self._left[stage], self._free[stage] = None, end
