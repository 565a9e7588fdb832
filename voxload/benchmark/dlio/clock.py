"""StepClock: times a loop's steps from inside the generator that feeds it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from time import perf_counter
from typing import Any

from voxload.benchmark.record import Steps


@dataclass(slots=True)
class _Step:
    asked: float
    came: float
    samples: int
    nbytes: int
    compute: float | None = None
    computed: float = 0.0
    ended: float = 0.0


class StepClock:
    """Notes when batches were asked for, came, and were done with; used by the loop's thread.

    What lies between a batch and the next request is the emulated computing, which `timed` measures, and the rest: the
    wait for other ranks, and what the loop writes down. A batch that nothing was computed for is no step: loops ask for
    one too many where they count.

    Parameters
    ----------
    now
        Seconds from some moment.
    """

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._start = now()
        self._steps: list[_Step] = []
        self._open: _Step | None = None
        self._unsettled = 0.0
        self._asked = self._begun = self._ended = self._start

    def begin(self) -> None:
        """Begin an epoch with its first request."""
        self._steps = []
        self._open = None
        self._unsettled = 0.0
        self._asked = self._begun = self._ended = self._now()

    def came(self, *, samples: int, nbytes: int) -> None:
        """Note that the batch asked for is here."""
        self._open = _Step(self._asked, self._now(), samples, nbytes)

    def done(self) -> None:
        """Note that the loop is through with its batch and asks for the next one."""
        self._asked = self._now()
        self._close(self._asked)

    def left(self) -> None:
        """Note that the loop has left: with the end of its last computing, for it has written reports since.

        How long it waited for other ranks in between is not to be seen from here; `settle` adds it.
        """
        step = self._open
        if step is not None and step.compute is not None:
            self._unsettled = step.computed - step.asked
        if step is not None:
            self._close(step.came if step.compute is None else step.computed)

    @property
    def unsettled(self) -> float:
        """Seconds of the epoch's last step until its computing was done, where the loop left then; else 0."""
        return self._unsettled

    def settle(self, slowest: float) -> None:
        """Let the last step end when the slowest rank's computing was done, after so many seconds.

        Ranks leave the wait after the step before together, so that seconds since then mean the same on all of them.
        """
        if self._unsettled:
            step = self._steps[-1]
            step.ended = self._ended = step.asked + max(slowest, self._unsettled)

    def exhausted(self) -> None:
        """Note that the loop asked for one more batch, and there is none."""
        self._ended = self._now()

    def timed(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Return `compute` with its time noted for the step that is under way.

        Where its last argument is a number, the seconds to sleep, no more than that is computing: an accelerator would
        have been done, and a busy host that wakes late has its own delay to answer for. So does DLIO 2.0.0 count.
        """

        @wraps(compute)
        def measured(*args: Any, **kwargs: Any) -> Any:
            begin = self._now()
            result = compute(*args, **kwargs)
            if self._open is not None:
                self._open.computed = self._now()
                self._open.compute = min(self._open.computed - begin, _wanted(args))
            return result

        return measured

    def epoch(self) -> tuple[Steps, float]:
        """Return the steps of the epoch, and seconds from its first request to its end."""
        steps = self._steps
        computed = tuple(step.compute or 0.0 for step in steps)
        found = Steps(
            begin=tuple(step.asked - self._start for step in steps),
            stall=tuple(step.came - step.asked for step in steps),
            compute=computed,
            peers=tuple(step.ended - step.came - compute for step, compute in zip(steps, computed, strict=True)),
            samples=tuple(step.samples for step in steps),
            nbytes=tuple(step.nbytes for step in steps),
        )
        return found, self._ended - self._begun

    def _close(self, ended: float) -> None:
        step, self._open = self._open, None
        self._ended = ended
        if step is not None and step.compute is not None:
            step.ended = ended
            self._steps.append(step)


def _wanted(args: tuple[Any, ...]) -> float:
    """Return the seconds that a call was asked to take; infinite where it draws them itself."""
    last = args[-1] if args else None
    return float(last) if isinstance(last, int | float) else math.inf
