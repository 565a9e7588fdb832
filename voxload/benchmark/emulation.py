"""Emulator: makes believe that a network computes on each batch.

``sleep`` leaves the processor to the loader, as a network on an accelerator does; ``spin`` takes one core from it, as
one on the processor does; ``gpu`` keeps a GPU busy. Which one is right depends on what the real job does meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from voxload.benchmark.durations import parse_durations
from voxload.benchmark.gpu import Gpu
from voxload.benchmark.spin import spin_until
from voxload.benchmark.workload import Emulation
from voxload.errors import UsageError

_LATE = 0.00025
"""Seconds by which a sleeper may wake up too late: the kernel's timer slack, 50 us, and the way back to a core."""


_CARRIED = 0.1
"""Most seconds of lateness that later steps make up for: a hypervisor's pause, and not a machine that stood still."""


class Work(Protocol):
    """What passes the time; used by one thread."""

    def last(self, stop: float, batch: Any) -> None:
        """Return as soon as time.perf_counter() shows `stop`, and not before."""
        ...


class Sleep:
    """Sleeps; the last quarter of a millisecond is spun, so that steps of a few milliseconds are as long as asked."""

    def last(self, stop: float, batch: Any) -> None:
        """Return at `stop`, whatever the batch."""
        del batch
        left = stop - _LATE - time.perf_counter()
        if left > 0:
            time.sleep(left)  # clock_nanosleep with an absolute deadline: signals do not make it longer
        spin_until(stop)


class Spin:
    """Keeps this thread's core busy, without the interpreter lock."""

    def last(self, stop: float, batch: Any) -> None:
        """Return at `stop`, whatever the batch."""
        del batch
        spin_until(stop)


class Emulator:
    """The computing of each step; used by one thread.

    Parameters
    ----------
    emulation
        What is asked for; ranks of equal seed compute equally long in each step.

    Raises
    ------
    UsageError
        When the kind or the durations are unknown, the seed is negative, or it wants a GPU and there is none.
    """

    def __init__(self, emulation: Emulation) -> None:
        self._durations = parse_durations(emulation.seconds)
        self._seed = emulation.seed
        if self._seed < 0:
            raise UsageError("seed of the compute time", found=str(self._seed), expected="0 or more")
        if emulation.kind not in _KINDS:
            raise UsageError("compute", found=repr(emulation.kind), expected=f"one of {', '.join(_KINDS)}")
        make = _KINDS[emulation.kind]
        self._work = make() if make is not None else None
        self._late = 0.0

    @property
    def mean(self) -> float:
        """Mean seconds of a step."""
        return self._durations.mean if self._work is not None else 0.0

    @property
    def note(self) -> str:
        """What a reader must know about the durations; empty for nothing."""
        return self._durations.note if self._work is not None else ""

    def compute(self, epoch: int, step: int, batch: Any) -> float:
        """Compute for as long as is drawn for this step; return the seconds that it took.

        A step that ends late, since a sleeper is not woken up in time, is made up for by the next ones, each at least
        half as long as drawn: so the mean is right. `batch` is what the loader delivered: a tensor, or tuples, lists
        and mappings of them.
        """
        if self._work is None:
            return 0.0
        begin = time.perf_counter()  # drawing takes a twentieth of a millisecond, and is part of the step
        seconds = self._durations.draw(self._seed, epoch, step)
        self._work.last(begin + seconds - min(self._late, seconds / 2), batch)
        took = time.perf_counter() - begin
        self._late = min(max(self._late + took - seconds, 0.0), _CARRIED)
        return took


_KINDS: dict[str, Callable[[], Work] | None] = {"none": None, "sleep": Sleep, "spin": Spin, "gpu": Gpu}
KINDS = tuple(_KINDS)
"""Names of all kinds."""
