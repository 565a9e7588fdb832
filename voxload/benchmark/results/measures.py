"""Measures: the figures of a result that tables, comparisons and reports show, with units and which way is good.

Bytes are in powers of ten throughout (GB is 1e9 bytes); where a table has GiB as well, a column of its own says so.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voxload.benchmark.measure.document import Document
from voxload.benchmark.measure.figures import PERCENTILES

GB, GIB = 1e9, 2.0**30
"""Bytes of a gigabyte and of a gibibyte."""


class Better(enum.Enum):
    """Which way a figure is good."""

    MORE = "more"
    LESS = "less"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure."""

    name: str
    """Its name in `Document.values`."""
    label: str
    unit: str
    better: Better
    factor: float = 1.0
    """What its stored value is divided by to be in its unit."""

    @property
    def title(self) -> str:
        """Label and unit."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    def values(self, document: Document) -> tuple[float, ...]:
        """Return its value in each run, in its unit; NaN where a run has none."""
        return tuple(value / self.factor for value in document.values(self.name))

    def known(self, document: Document) -> tuple[float, ...]:
        """Return its values without those that are missing."""
        return tuple(value for value in self.values(document) if math.isfinite(value))

    def median(self, document: Document) -> float:
        """Return the middle one of its known values; NaN where there is none."""
        return middle(self.known(document))


def _latencies(name: str, label: str) -> tuple[Measure, ...]:
    ranks = ["max" if rank == 100 else f"p{rank}" for rank in PERCENTILES]
    return tuple(Measure(f"{name}.{rank}", f"{label}, {rank}", "ms", Better.LESS, 1e-3) for rank in ranks)


THROUGHPUT = (
    Measure("samples_per_second", "throughput", "samples/s", Better.MORE),
    Measure("delivered_per_second", "delivered", "GB/s", Better.MORE, GB),
    Measure("utilisation", "AU", "%", Better.MORE, 0.01),
    Measure("seconds", "all epochs", "s", Better.LESS),
)
WAITING = (
    Measure("first_batch_seconds", "time to first batch", "s", Better.LESS),
    Measure("stall_seconds", "waiting for data", "s", Better.LESS),
    Measure("compute_seconds", "computing", "s", Better.NEITHER),
    Measure("slowdown", "computing over alone", "", Better.LESS),
    Measure("peer_seconds", "waiting for ranks", "s", Better.LESS),
)
STALLS, STEPS = _latencies("stall", "stall of a step"), _latencies("step", "whole step")
ASKED = Measure("asked_bytes", "asked of the storage", "GB", Better.LESS, GB)
BYTES = (
    Measure("delivered_bytes", "delivered", "GB", Better.NEITHER, GB),
    ASKED,
    Measure("read_bytes", "read calls returned", "GB", Better.LESS, GB),
    Measure("device_bytes", "read from devices", "GB", Better.LESS, GB),
)
AMPLIFICATION = Measure("amplification", "read over delivered", "", Better.LESS)
RESOURCES = (
    AMPLIFICATION,
    Measure("cores", "cores busy, all ranks", "", Better.NEITHER),
    Measure("peak_memory", "peak memory, a rank", "GB", Better.LESS, GB),
)
MEANS = "Waiting and computing are means over ranks, of all epochs together."
GROUPS = {
    "Throughput": THROUGHPUT,
    "Waiting": WAITING,
    "Stall": STALLS,
    "Step": STEPS,
    "Bytes": BYTES,
    "Resources": RESOURCES,
}
"""All of them, in groups."""
MEASURES = tuple(measure for group in GROUPS.values() for measure in group)
"""All of them."""


def middle(values: Sequence[float]) -> float:
    """Return the median; NaN of nothing."""
    return float(np.median(values)) if values else math.nan


def number(value: float) -> str:
    """Return three digits, or all before the point up to a million; a dash for what is unknown.

    >>> number(1234.5), number(0.98765), number(0.0), number(float("nan")), number(2.5e9)
    ('1,234', '0.988', '0', '-', '2.5e+09')
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "infinite"
    if value == 0:
        return "0"
    if not 1e-6 <= abs(value) < 1e6:
        return f"{value:.3g}"
    places = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(places, 0)}f}"


def node_count(document: Document) -> int:
    """Return on how many nodes the ranks ran."""
    return len({record.node for run in document.runs for record in run.records}) or len(document.hosts) or 1
