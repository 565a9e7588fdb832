"""Results: one table of a run as data, from which everything that is printed follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.reading.clock import Measurement, Timing
from bench.reading.contender import Job


@dataclass(frozen=True, slots=True)
class Result:
    """All timings of one sample and case."""

    layout: str
    """Storage format."""
    is_compressed: bool
    """Whether reading it needs a decoder."""
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
    measurement: Measurement
    """The timings."""

    @classmethod
    def of(cls, job: Job, measurement: Measurement) -> Result:
        """Return the result of a job."""
        sample = job.sample
        return cls(
            sample.layout.name,
            sample.layout.is_compressed,
            sample.dtype,
            sample.size,
            sample.chunk,
            job.case.name,
            job.out.nbytes,
            sample.stored_bytes() / (sample.size**3 * job.out.itemsize),
            measurement,
        )

    def timings(self, *peers: str) -> list[Timing]:
        """Return the rows of `peers`."""
        return [timing for timing in self.measurement.timings if timing.peer in peers]

    def own(self, threads: int) -> Timing | None:
        """Return voxload's row with `threads` threads."""
        return next((timing for timing in self.timings("voxload") if timing.threads == threads), None)

    def ratio(self, threads: int, *peers: str) -> float | None:
        """Return how many times faster voxload is than the fastest of `peers`, or None when either is absent.

        A peer that can be told its number of threads counts with `threads` where it ran with them.
        """
        own, rows = self.own(threads), self.timings(*peers)
        rows = [row for row in rows if row.threads in (0, threads)] or rows
        return min(row.median for row in rows) / own.median if own and rows else None

    def fastest_peer(self, threads: int) -> Timing | None:
        """Return the fastest row that is neither voxload nor memcpy."""
        rows = [row for row in self.measurement.timings if row.peer not in ("voxload", "memcpy")]
        return min((row for row in rows if row.threads <= threads), key=lambda row: row.median, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return what goes into the JSON file."""
        return {
            "layout": self.layout,
            "dtype": self.dtype,
            "size": self.size,
            "chunk": self.chunk,
            "case": self.case,
            "useful_bytes": self.useful_bytes,
            "stored_share": self.stored_share,
            "resident": self.measurement.resident,
            "bystander_cores": self.measurement.bystanders,
            "wrong": self.measurement.wrong,
            "contenders": [
                {
                    "peer": row.peer,
                    "title": row.title,
                    "threads": row.threads,
                    "median_s": row.median,
                    "spread": row.spread,
                    "seconds": row.seconds,
                }
                for row in self.measurement.timings
            ],
        }


def thread_counts(results: Iterable[Result]) -> tuple[int, ...]:
    """Return the numbers of threads that voxload ran with."""
    return tuple(sorted({row.threads for result in results for row in result.timings("voxload")}))
