"""LoaderStats: what a loader delivered, what it read for it, and who waited for whom."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from voxload.display.table import several
from voxload.prefetch.events import SourceKind
from voxload.prefetch.meter import Traffic
from voxload.readers.protocol import ReadCost
from voxload.units import format_bytes

TIMELINE_STEPS = 65536
"""Steps kept for the timeline: a long run keeps its latest ones, at about 3 MiB."""


@dataclass(frozen=True, slots=True)
class Step:
    """One batch as its consumer saw it; seconds count from the loader's first request."""

    asked: float
    """When the batch was asked for."""
    stall: float
    """How long the consumer waited for it."""
    compute: float
    """How long the consumer worked before it asked for the next one; 0 while it still does."""


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """Totals of one loader on one rank, over all its epochs."""

    batches: int
    """Batches delivered."""
    samples: int
    """Samples in them."""
    bytes_needed: int
    """Bytes of the blocks delivered, halo included."""
    bytes_read: int
    """Bytes asked of the storage for them: whole chunks as stored."""
    bytes_decoded: int
    """Bytes those chunks hold once decoded."""
    seconds_stalled: float
    """Time in which the consumer waited for data."""
    seconds_computing: float
    """Time between a batch's delivery and the request for the next one."""
    steps: tuple[Step, ...]
    """The latest steps, oldest first."""
    sources: Mapping[str, Traffic] = field(default_factory=dict)
    """What came from where, by kind of place: ``storage``, ``memory``, ``disk``, ``peer``, and ``service`` where blocks
    came from one. Empty without a cache."""

    @property
    def read_amplification(self) -> float:
        """Bytes read over bytes needed; below 1 where storage is compressed."""
        return self.bytes_read / self.bytes_needed if self.bytes_needed else 0.0

    @property
    def decode_amplification(self) -> float:
        """Bytes decoded over bytes needed; 1 where chunks and blocks agree."""
        return self.bytes_decoded / self.bytes_needed if self.bytes_needed else 0.0

    @property
    def accelerator_utilisation(self) -> float:
        """AU: compute over compute and stall."""
        total = self.seconds_computing + self.seconds_stalled
        return self.seconds_computing / total if total else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all figures, the derived ones too, as plain values for JSON."""
        return asdict(self) | {
            "read_amplification": self.read_amplification,
            "decode_amplification": self.decode_amplification,
            "accelerator_utilisation": self.accelerator_utilisation,
            "sources": sources_as_dict(self.sources),
        }


def sources_as_dict(sources: Mapping[str, Traffic]) -> dict[str, dict[str, float]]:
    """Return what came from where, with the bandwidths, as plain values for JSON."""
    return {kind: asdict(traffic) | {"bandwidth": traffic.bandwidth} for kind, traffic in sources.items()}


_Report = tuple[float, float, int, int, ReadCost] | float


class StatsRecorder:
    """Adds up what iterators of one loader report; safe to use from many threads.

    A report is one entry of a list, made while a loop waits for its batch: many are added up later, at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: deque[_Report] = deque()
        self.report: Callable[[_Report], None] = self._reports.append
        """Take a report: ``(asked, stall, samples, bytes, cost)`` of a batch that was asked for at a clock time and
        waited for some seconds; or the seconds for which the consumer worked on the batch that was reported last."""
        self._batches = self._samples = self._needed = 0
        self._cost = ReadCost()
        self._stall = self._compute = 0.0
        self._steps: list[Step] = []
        self._start: float | None = None

    def add_up(self) -> None:
        """Count what was reported; as often as memory for the reports is to be had back."""
        with self._lock:
            self._add_up()

    def facts(self) -> dict[str, str]:
        """Return what was delivered so far, for people; empty before the first batch, and while another thread counts.

        Who prints a loader in a debugger may stand where the lock is held, and does not wait for it.
        """
        if not self._lock.acquire(blocking=False):
            return {}
        try:
            self._add_up()
            total = self._compute + self._stall
            if not self._batches:
                return {}
            return {
                "delivered so far": f"{several(self._batches, 'batch', 'batches')}, {format_bytes(self._needed)}",
                "waited for data": f"{self._stall:.3g} s of {total:.3g} s" if total else f"{self._stall:.3g} s",
                "read amplification": f"{self._cost.stored_bytes / self._needed:.3g}" if self._needed else "",
            }
        finally:
            self._lock.release()

    def snapshot(self, sources: Mapping[SourceKind, Traffic] | None = None) -> LoaderStats:
        """Return the totals so far, with what a meter counted."""
        named = {kind.value: traffic for kind, traffic in (sources or {}).items()}
        with self._lock:
            self._add_up()
            return LoaderStats(
                batches=self._batches,
                samples=self._samples,
                bytes_needed=self._needed,
                bytes_read=self._cost.stored_bytes,
                bytes_decoded=self._cost.decoded_bytes,
                seconds_stalled=self._stall,
                seconds_computing=self._compute,
                steps=tuple(self._steps),
                sources=named,
            )

    def _add_up(self) -> None:
        """Count what was reported; under the lock."""
        while self._reports:
            report = self._reports.popleft()
            if isinstance(report, float):
                self._compute += report
                last = self._steps[-1]
                self._steps[-1] = Step(last.asked, last.stall, report)
                continue
            asked, stall, samples, needed, cost = report
            self._batches += 1
            self._samples += samples
            self._needed += needed
            self._cost += cost
            self._stall += stall
            self._start = asked if self._start is None else self._start
            self._steps.append(Step(asked - self._start, stall, 0.0))
        if len(self._steps) > TIMELINE_STEPS:
            del self._steps[: len(self._steps) - TIMELINE_STEPS // 2]
