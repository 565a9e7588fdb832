"""Plot: batches a second, and memory, by contender and case."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bench.loading.results import Result

mpl.use("Agg")

_OWN, _PEER = "#1f77b4", "#b0b0b0"
_MIB = 1 << 20


def draw(results: Sequence[Result], path: Path, *, workers: int) -> None:
    """Draw one row of panels for each case."""
    cases = list(dict.fromkeys(result.case.name for result in results))
    rows = [[result for result in results if result.case.name == case] for case in cases]
    heights = [1.1 + 0.42 * len(row) for row in rows]
    figure = Figure(figsize=(12, sum(heights) + 0.4), layout="constrained")
    panels = figure.subplots(len(rows), 3, squeeze=False, gridspec_kw={"height_ratios": heights})
    for line, row in zip(panels, rows, strict=True):
        titles = [result.contender.title.format(n=workers) for result in row]
        colors = [_PEER if result.contender.is_peer else _OWN for result in row]
        _bars(line[0], colors, [[run.later_rate for run in result.runs] for result in row], "{:.1f}")
        _bars(line[1], colors, [[run.held / _MIB for run in result.runs] for result in row], "{:.0f}")
        _bars(line[2], colors, [[run.first for run in result.runs] for result in row], "{:.2f}")
        line[0].set_yticks(np.arange(len(row)), titles, fontsize=8)
        line[0].set_title(row[0].case.name, loc="left", fontsize=10)
        for panel, name in zip(
            line, ("batches/s, from epoch 2 on", "MiB beyond imports", "s to the first batch"), strict=True
        ):
            panel.set_xlabel(name, fontsize=8)
        for panel in line[1:]:
            panel.set_yticks([])
    figure.savefig(path, dpi=110)


def _bars(panel: Any, colors: Sequence[str], figures: Sequence[Sequence[float]], text: str) -> None:
    """Draw medians as bars, and the range of all rounds as lines."""
    longest = max(max(each) for each in figures)
    for row, (color, each) in enumerate(zip(colors, figures, strict=True)):
        middle = float(np.median(each))
        panel.barh(row, middle, 0.7, color=color)
        panel.plot([min(each), max(each)], [row, row], color="black", linewidth=1)
        panel.text(max(each) + 0.01 * longest, row, text.format(middle), va="center", fontsize=8)
    panel.set_xlim(0, 1.18 * longest)
    panel.set_ylim(len(figures) - 0.5, -0.5)
    panel.tick_params(axis="x", labelsize=8)
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
