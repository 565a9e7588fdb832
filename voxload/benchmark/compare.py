"""Comparison: what changed from one result to another, beyond noise or not, and what else differs; pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from voxload.benchmark.differences import Difference, differences
from voxload.benchmark.document import Document
from voxload.benchmark.intervals import Interval, ratio, ratio_interval
from voxload.benchmark.measures import AMPLIFICATION, ASKED, MEASURES, Better, Measure, middle


class Verdict(enum.Enum):
    """What can be said of a figure in two results; values are what people read."""

    BETTER = "better"
    WORSE = "worse"
    CHANGED = "changed"
    """Beyond noise, and neither way is good."""
    NOISE = "within noise"
    SINGLE = "no interval"
    """A result has one run: nothing tells noise from change."""
    FEW = "too few runs"
    """The runs of both sides do not overlap, yet so few would not now and then without any change."""
    MISSING = "not in both"


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in both results."""

    measure: Measure
    before: float
    """Median of the first result's runs, in the measure's unit; NaN where it has none."""
    after: float
    """Of the second's."""
    ratio: float
    """``after / before``; NaN where either is missing."""
    interval: Interval | None
    """Of that ratio; None where a result has one run."""
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; None for what is no number."""
        return {
            "figure": self.measure.name,
            "unit": self.measure.unit,
            "better": self.measure.better.value,
            "median_a": _finite(self.before),
            "median_b": _finite(self.after),
            "ratio": _finite(self.ratio),
            "interval": None
            if self.interval is None
            else {name: _finite(value) for name, value in asdict(self.interval).items()},
            "verdict": self.verdict.value,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results."""

    changes: tuple[Change, ...]
    """Of each figure that at least one of them has."""
    differences: tuple[Difference, ...]
    """What differs beside the figures."""
    runs: tuple[int, int]
    """Repetitions of each."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "runs": list(self.runs),
            "figures": [change.as_dict() for change in self.changes],
            "differences": [asdict(difference) for difference in self.differences],
        }


def compare_results(first: Document, second: Document) -> Comparison:
    """Return what changed from the first result to the second."""
    measures = [measure for measure in MEASURES if _is_alike(measure, first, second)]
    changes = [change(measure, measure.known(first), measure.known(second)) for measure in measures]
    return Comparison(
        tuple(found for found in changes if not (math.isnan(found.before) and math.isnan(found.after))),
        differences(first, second),
        (len(first.runs), len(second.runs)),
    )


def change(measure: Measure, before: Sequence[float], after: Sequence[float]) -> Change:
    """Return what became of one figure, from its values in the runs of both results, in its unit."""
    middles = (middle(before), middle(after))
    if not before or not after:
        return Change(measure, *middles, math.nan, None, Verdict.MISSING)
    interval = ratio_interval(before, after)
    return Change(measure, *middles, ratio(*middles), interval, _verdict(measure.better, interval))


def _is_alike(measure: Measure, first: Document, second: Document) -> bool:
    """Return whether a figure means the same in both.

    Amplification is of bytes asked of the storage, or of those that read calls returned where a loader tells none.
    """
    return measure is not AMPLIFICATION or bool(ASKED.known(first)) is bool(ASKED.known(second))


def _verdict(better: Better, interval: Interval | None) -> Verdict:
    if interval is None:
        return Verdict.SINGLE
    if interval.low <= 1 <= interval.high:
        return Verdict.NOISE
    if not interval.is_sure:
        return Verdict.FEW
    if better is Better.NEITHER:
        return Verdict.CHANGED
    return Verdict.BETTER if (interval.low > 1) is (better is Better.MORE) else Verdict.WORSE


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
