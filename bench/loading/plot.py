"""Plot: batches a second, memory and the first batch, by contender and case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bench.loading.cases import Case
from bench.loading.results import Runs

mpl.use("Agg")

_OWN, _PEER = "#1f77b4", "#b0b0b0"
_MIB = 1 << 20


def draw(results: Mapping[Case, Runs], path: Path, *, threads: int) -> None:
    """Draw one row of panels for each case."""
    heights = [1.1 + 0.42 * len(runs.results) for runs in results.values()]
    figure = Figure(figsize=(12, sum(heights) + 0.4), layout="constrained")
    panels = figure.subplots(len(results), 3, squeeze=False, gridspec_kw={"height_ratios": heights})
    for line, (case, runs) in zip(panels, results.items(), strict=True):
        colors = [_PEER if each.is_peer else _OWN for each in runs.results]
        shown = {
            "batches/s, from epoch 2 on": (runs.figures(lambda run: run.later_rate), "{:.1f}"),
            "MiB beyond imports": (runs.figures(lambda run: run.held / _MIB), "{:.0f}"),
            "s to the first batch": (runs.figures(lambda run: run.first), "{:.2f}"),
        }
        for panel, (name, (figures, text)) in zip(line, shown.items(), strict=True):
            _bars(panel, colors, list(figures.results.values()), text)
            panel.set_xlabel(name, fontsize=8)
            panel.set_yticks([])
        titles = [each.title.format(n=threads) for each in runs.results]
        line[0].set_yticks(np.arange(len(titles)), titles, fontsize=8)
        line[0].set_title(case.name, loc="left", fontsize=10)
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
