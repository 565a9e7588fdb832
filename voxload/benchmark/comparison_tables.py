"""Tables of a comparison for the terminal, each within 80 columns."""

from __future__ import annotations

import math

from rich.console import Group
from rich.table import Table
from rich.text import Text

from voxload.benchmark.compare import Change, Comparison, Verdict
from voxload.benchmark.differences import DATA, WORKLOAD
from voxload.benchmark.measures import MEANS, number
from voxload.benchmark.tables import plain_table

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
