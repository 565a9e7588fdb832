"""Plot: time by contender, stacked by epoch, beside the lower bound."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bench.prefetching.results import Result

mpl.use("Agg")


def draw(results: Sequence[Result], path: Path, *, title: str) -> None:
    """Draw one bar for each contender."""
    figure = Figure(figsize=(9, 1.6 + 0.55 * len(results)), layout="constrained")
    panel = figure.subplots()
    epochs = max(len(result.epochs) for result in results)
    colors = mpl.colormaps["Blues"](np.linspace(0.85, 0.35, epochs))
    longest = max(result.seconds for result in results)
    for row, result in enumerate(results):
        left = 0.0
        for epoch, seconds in enumerate(result.epochs):
            label = f"epoch {epoch + 1}" if row == 0 else None
            panel.barh(
                row, seconds, 0.66, left=left, color=colors[epoch], edgecolor="white", linewidth=0.8, label=label
            )
            left += seconds
        times = [run.seconds for run in result.runs]
        panel.plot([min(times), max(times)], [row, row], color="black", linewidth=1.2, label=None if row else "range")
        panel.text(max(left, *times) + 0.01 * longest, row, f"{result.seconds:.1f} s", va="center", fontsize=9)
        bound, simulated = result.forecast.bound, result.forecast.seconds
        edges = [row - 0.42, row + 0.42]
        panel.plot([bound] * 2, edges, color="#d62728", linewidth=1.8, label=None if row else "lower bound")
        panel.plot(
            [simulated] * 2, edges, color="#e07b20", linewidth=1.8, linestyle=":", label=None if row else "simulated"
        )
    panel.set_yticks(np.arange(len(results)), [_name(result) for result in results])
    panel.set_ylim(len(results) - 0.4, -0.6)
    panel.set_xlim(0, longest * 1.12)
    panel.set_xlabel("seconds")
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_title("\n".join(textwrap.wrap(title, 90)), fontsize=9, loc="left")
    figure.legend(loc="outside lower center", ncols=epochs + 3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)


def _name(result: Result) -> str:
    return f"{result.contender.name}, {result.compute * 1e3:.0f} ms a step"
