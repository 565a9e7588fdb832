"""Results: one table of a run as data, from which everything that is printed follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.harness.samples import LAYOUTS
from bench.harness.script import document
from bench.reading.contender import Job


@dataclass(frozen=True, slots=True)
class Timing:
    """What one contender took."""

    peer: str
    """Name on the command line."""
    title: str
    """What tables call it, with the setting that was kept."""
    threads: int
    """Threads or processes that it may use; 0 when it has no such choice."""
    seconds: tuple[float, ...]
    """One time a round."""

    @property
    def median_s(self) -> float:
        """The middle time, in seconds."""
        return float(np.median(self.seconds))

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles over the median."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float((high - low) / 2 / self.median_s)


@dataclass(frozen=True, slots=True)
class Result:
    """All timings of one sample and case."""

    layout: str
    """Storage format."""
    dtype: str
    """Type of the voxels."""
    size: int
    """Extent of the sample."""
    chunk: int | None
    """Extent of a chunk; None when storage is contiguous."""
    case: str
    """Name of the case."""
    useful_bytes: int
    """Bytes that the boxes hold."""
    stored_share: float
    """Stored bytes of the sample over its bytes."""
    resident: tuple[float, float]
    """Least and largest share of the sample's pages in memory when a read began."""
    bystander_cores: float
    """Cores that others used meanwhile."""
    wrong: tuple[str, ...]
    """Contenders that did not return what was written, and so were not timed."""
    contenders: tuple[Timing, ...]
    """The others, one timing each."""

    @classmethod
    def of(cls, job: Job, **measured: Any) -> Result:
        """Return the result of a job; `measured` are the fields from `resident` on."""
        sample = job.sample
        return cls(
            layout=sample.layout,
            dtype=sample.dtype,
            size=sample.size,
            chunk=sample.chunk,
            case=job.case.name,
            useful_bytes=job.out.nbytes,
            stored_share=sample.stored_bytes() / sample.plan.sample_bytes,
            **measured,
        )

    @property
    def is_compressed(self) -> bool:
        """Whether reading it needs a decoder."""
        return not LAYOUTS[self.layout].codec.is_none

    def timings(self, *peers: str) -> list[Timing]:
        """Return the rows of `peers`."""
        return [timing for timing in self.contenders if timing.peer in peers]

    def own(self, threads: int) -> Timing | None:
        """Return voxload's row with `threads` threads."""
        return next((timing for timing in self.timings("voxload") if timing.threads == threads), None)

    def ratio(self, threads: int, *peers: str) -> float | None:
        """Return how many times faster voxload is than the fastest of `peers`, or None when either is absent.

        A peer that can be told its number of threads counts with `threads` where it ran with them.
        """
        own, rows = self.own(threads), self.timings(*peers)
        rows = [row for row in rows if row.threads in (0, threads)] or rows
        return min(row.median_s for row in rows) / own.median_s if own and rows else None

    def fastest_peer(self, threads: int) -> Timing | None:
        """Return the fastest row that is neither voxload nor memcpy."""
        rows = [row for row in self.contenders if row.peer not in ("voxload", "memcpy")]
        return min((row for row in rows if row.threads <= threads), key=lambda row: row.median_s, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return what goes into the JSON file."""
        return document(self) | {"contenders": [document(row) for row in self.contenders]}


def thread_counts(results: Iterable[Result]) -> tuple[int, ...]:
    """Return the numbers of threads that voxload ran with."""
    return tuple(sorted({row.threads for result in results for row in result.timings("voxload")}))
