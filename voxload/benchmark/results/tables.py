"""Tables of results for the terminal, each within 80 columns; labels come first.

Labels come first: a figure of a warm cache or of absent ranks means something else, and its reader has to know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from voxload.benchmark.measure.document import Document
from voxload.benchmark.results.compare import DATA, WORKLOAD, Change, Comparison, Verdict
from voxload.benchmark.results.intervals import median_interval
from voxload.benchmark.results.measures import (
    BYTES,
    GB,
    GIB,
    MEANS,
    RESOURCES,
    STALLS,
    STEPS,
    THROUGHPUT,
    WAITING,
    Measure,
    middle,
    node_count,
    number,
)


def result_tables(document: Document) -> Group:
    """Return labels, figures, bytes and, where the loader tells them, tiers of one result, to be printed."""
    parts: list[RenderableType] = [*_labels(document), "", figure_table(document), "", byte_table(document)]
    if any(run.figures["sources"] for run in document.runs):
        parts += ["", source_table(document)]
    return Group(*parts)


def figure_table(document: Document) -> Table:
    """Return the median of the repetitions of each figure and, with several, its interval."""
    repetitions = len(document.runs)
    columns = ("figure", "unit", "median", "from", "to") if repetitions > 1 else ("figure", "unit", "value")
    table = plain_table(f"{document.workload.supply.loader}, {ranks_text(document)}", columns)
    for group in (THROUGHPUT, WAITING, STALLS, STEPS, RESOURCES):
        rows = [measure for measure in group if measure.known(document)]
        for measure in rows:
            table.add_row(*_figure_row(measure, document), end_section=measure is rows[-1])
    table.caption = Text(f"{interval_text(document)} {MEANS}")
    return table


def byte_table(document: Document) -> Table:
    """Return bytes as they were delivered, asked of the storage, returned by read calls and given by devices."""
    columns = ("", "delivered", "asked of\nstorage", "read calls\nreturned", "read from\ndevices")
    table = plain_table("Bytes of a run, all ranks (GB = 1e9 bytes, GiB = 2^30 bytes)", columns)
    per_run = [tuple(value * GB for value in measure.values(document)) for measure in BYTES]
    seconds = document.values("seconds")
    totals = [_known_middle(values) for values in per_run]
    rates = [_known_middle([_over(*pair) for pair in zip(values, seconds, strict=True)]) for values in per_run]
    ratios = [_known_middle([_over(*pair) for pair in zip(values, per_run[0], strict=True)]) for values in per_run]
    table.add_row("GB", *(number(value / GB) for value in totals))
    table.add_row("GiB", *(number(value / GIB) for value in totals))
    table.add_row("over delivered", *(number(value) for value in ratios), end_section=True)
    table.add_row("GB/s, all ranks", *(number(value / GB) for value in rates))
    table.add_row("GiB/s, all ranks", *(number(value / GIB) for value in rates))
    table.add_row("GB/s, a node", *(number(value / GB / node_count(document)) for value in rates))
    table.add_row("GB/s, a rank", *(number(value / GB / document.ranks) for value in rates))
    table.caption = Text(
        "A dash: the loader does not count it. Of network file systems the kernel counts no device, and of memory "
        "maps no read call."
    )
    return table


def source_table(document: Document) -> Table:
    """Return which share of the bytes came from which tier."""
    table = plain_table("Blocks by where they came from", ("source", "GB", "GiB", "share"))
    found = [dict(run.figures["sources"]) for run in document.runs]
    names = dict.fromkeys(name for sources in found for name in sources)
    for name in names:
        nbytes = middle([sources.get(name, 0) for sources in found])
        share = middle([sources.get(name, 0) / (sum(sources.values()) or 1) for sources in found])
        table.add_row(name, number(nbytes / GB), number(nbytes / GIB), f"{share:.1%}")
    return table


def ranks_text(document: Document) -> str:
    """Return how many ranks ran on how many nodes, how often."""
    counts = ((document.ranks, "rank"), (node_count(document), "node"), (len(document.runs), "run"))
    ranks, nodes, runs = (f"{count} {noun}" + ("s" if count != 1 else "") for count, noun in counts)
    return f"{ranks} on {nodes}, {runs}"


def interval_text(document: Document) -> str:
    """Return what the intervals of a result are worth."""
    found = median_interval([float(place) for place, _ in enumerate(document.runs)])
    if found is None:
        return "One run: no interval."
    kind = "the runs between which" if found.low > 0 else "the lowest and the highest run, between which"
    return f"From and to: {kind} the true median lies, confidence {found.coverage:.0%}."


def plain_table(title: str, columns: Sequence[str]) -> Table:
    """Return a table without rows; its first column is words, the others are figures."""
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    table.caption_justify = "left"
    return table


def _labels(document: Document) -> list[Text]:
    return [Text(f"! {label}", style="bold yellow") for label in document.labels]


def _figure_row(measure: Measure, document: Document) -> list[str]:
    known = measure.known(document)
    row = [measure.label, measure.unit, number(middle(known))]
    if len(document.runs) > 1:
        interval = median_interval(known)
        row += ["-", "-"] if interval is None else [number(interval.low), number(interval.high)]
    return row


def _known_middle(values: Sequence[float]) -> float:
    return middle([value for value in values if math.isfinite(value)])


def _over(amount: float, whole: float) -> float:
    return amount / whole if whole > 0 else math.nan


_STYLES = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.CHANGED: "yellow"}


def comparison_tables(comparison: Comparison) -> Group:
    """Return what differs beside the figures, then the figures, to be printed."""
    return Group(difference_table(comparison), "", change_table(comparison))


def difference_table(comparison: Comparison) -> Table | Text:
    """Return the facts that two results do not share, or a sentence that says that there are none."""
    if not comparison.differences:
        return Text("Workload, data set, hosts and versions are the same.")
    table = plain_table("What differs beside the figures", ("part", "fact", "A", "B"))
    for column in table.columns:
        column.justify, column.no_wrap, column.overflow = "left", False, "fold"
    for found in comparison.differences:
        table.add_row(*(Text(text) for text in (found.part, found.name, found.before, found.after)))
    if any(found.part in {WORKLOAD, DATA} for found in comparison.differences):
        table.caption = Text(
            "Workload or data set are not the same: figures below compare unlike things if unintended."
        )
    return table


def change_table(comparison: Comparison) -> Table:
    """Return the medians of each figure, their ratio and, of several runs, its interval and the verdict."""
    has_interval = min(comparison.runs) > 1
    columns = ("figure", "A", "B", "B/A", *(("from", "to", "verdict") if has_interval else ()))
    table = plain_table(f"Figures of A and B; {_runs_text(comparison)}", columns)
    table.columns[0].no_wrap = False  # where figures are long, names give way
    for change in comparison.changes:
        cells: list[str | Text] = [change.measure.title, number(change.before), number(change.after)]
        cells.append(_times(change.ratio))
        table.add_row(*cells, *(_judgement(change) if has_interval else ()))
    table.caption = Text(f"{_caption(comparison)} {MEANS}")
    return table


def _runs_text(comparison: Comparison) -> str:
    first, second = comparison.runs
    if (first, second) == (1, 1):
        return "one run each: no interval"
    if 1 in comparison.runs:
        return f"{'A' if first == 1 else 'B'} has one run: no interval"
    return f"medians of {first} and {second} runs"


def _judgement(change: Change) -> tuple[str, str, Text]:
    """Return both ends of the interval, and the verdict."""
    interval = change.interval
    low, high = (math.nan, math.nan) if interval is None else (interval.low, interval.high)
    return _times(low), _times(high), Text(change.verdict.value, style=_STYLES.get(change.verdict, ""))


def _times(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) and value < 100 else number(value)


def _caption(comparison: Comparison) -> str:
    interval = next((change.interval for change in comparison.changes if change.interval is not None), None)
    if interval is None:
        return "One run tells no change from noise: repeat runs."
    text = f"From and to hold the true ratio with {interval.coverage:.0%} confidence, each figure by itself"
    if interval.is_sure:
        return f"{text}; of 20 figures that did not change, one may be called changed by chance."
    return f"{text}: too little for a verdict; four runs of each are enough."
