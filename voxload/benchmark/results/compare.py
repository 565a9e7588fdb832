"""Comparison: what changed from one result to another, beyond noise or not, and what else differs; pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from voxload.benchmark.measure.document import Document
from voxload.benchmark.results.intervals import Interval, ratio, ratio_interval
from voxload.benchmark.results.measures import (
    AMPLIFICATION,
    ASKED,
    MEASURES,
    Better,
    Measure,
    middle,
    node_count,
    number,
)
from voxload.display.description import Described, Description
from voxload.display.table import Listing

ABSENT = "(none)"
"""Stands for what only the other result has."""
WORKLOAD, DATA, HOST, RUN = "workload", "data set", "host", "run"
"""Parts of a result that can differ."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that two results do not share."""

    part: str
    """`WORKLOAD`, `DATA`, `HOST` or `RUN`."""
    name: str
    """The fact, with points between levels: ``share.halo``, ``versions.numpy``."""
    before: str
    after: str


def differences(first: Document, second: Document) -> tuple[Difference, ...]:
    """Return what differs in workload, data set, hosts with their versions, and how they ran."""
    return tuple(
        Difference(part, name, before, after)
        for part, both in _parts(first, second)
        for name, before, after in _unequal(*both)
    )


def flat(values: Mapping[str, Any], *, above: str = "") -> dict[str, str]:
    """Return nested facts as text by name, with points between levels."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, above=f"{above}{name}.")
        else:
            found[f"{above}{name}"] = _text(value)
    return found


def host_facts(document: Document) -> dict[str, str]:
    """Return the facts of all hosts, by name: each value that occurs, once."""
    hosts = [flat(host) for host in document.hosts]
    names = dict.fromkeys(name for host in hosts for name in host)
    return {name: "; ".join(dict.fromkeys(host[name] for host in hosts if name in host)) for name in names}


def _parts(first: Document, second: Document) -> tuple[tuple[str, tuple[dict[str, str], dict[str, str]]], ...]:
    return (
        (WORKLOAD, (flat(asdict(first.workload)), flat(asdict(second.workload)))),
        (DATA, (flat(first.data), flat(second.data))),
        (HOST, (host_facts(first), host_facts(second))),
        (RUN, (_run_facts(first), _run_facts(second))),
    )


def _run_facts(document: Document) -> dict[str, str]:
    """Return how a result came about; not when, nor its seeds, which differ in any two."""
    states = dict.fromkeys(
        f"{run.cold.method}, {'' if run.cold.is_verified else 'not '}verified" for run in document.runs
    )
    labels = {f"label: {label}": "yes" for label in document.labels}
    return {
        "ranks": str(document.ranks),
        "ranks of a sample group": str(document.group_ranks),
        "nodes": str(node_count(document)),
        "repetitions": str(len(document.runs)),
        "page cache": "; ".join(states),
        **labels,
    }


def _unequal(first: Mapping[str, str], second: Mapping[str, str]) -> list[tuple[str, str, str]]:
    names = dict.fromkeys((*first, *second))
    pairs = ((name, first.get(name, ABSENT), second.get(name, ABSENT)) for name in names)
    return [found for found in pairs if found[1] != found[2]]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_text(inner) for inner in value)
    return str(value)


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


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Described):
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

    def _described(self) -> Description:
        return _comparison_words(self)


def _comparison_words(found: Comparison) -> Description:
    """Return what two results say of each other."""
    rows = tuple(
        (one.measure.title, number(one.before), number(one.after), number(one.ratio), one.verdict.value)
        for one in found.changes
    )
    others = tuple((one.part, one.name, one.before, one.after) for one in found.differences)
    listings = (
        Listing("Figures", ("figure", "first", "second", "ratio", "verdict"), rows),
        Listing("What differs besides", ("part", "fact", "first", "second"), others),
    )
    parts = (f"{found.runs[0]} and {found.runs[1]} runs", f"{len(rows)} figures", f"{len(others)} differences")
    return Description("Comparison", parts, listings=listings)


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
