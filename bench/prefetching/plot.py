"""Plot: time by contender, stacked by epoch, beside the lower bound."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bench.prefetching.forecast import Forecast
from bench.prefetching.results import Run, median_epochs

mpl.use("Agg")


def draw(runs: Mapping[str, Sequence[Run]], forecasts: Mapping[str, Forecast], path: Path, *, title: str) -> None:
    """Draw one bar for each contender, with all of its runs, into a PNG file."""
    figure = Figure(figsize=(9, 1.6 + 0.55 * len(runs)), layout="constrained")
    panel = figure.subplots()
    epochs = {name: median_epochs(each) for name, each in runs.items()}
    most = max(map(len, epochs.values()))
    colors = mpl.colormaps["Blues"](np.linspace(0.85, 0.35, most))
    longest = max(map(sum, epochs.values()))
    for row, (name, each) in enumerate(runs.items()):
        left = 0.0
        for epoch, seconds in enumerate(epochs[name]):
            label = None if row else f"epoch {epoch + 1}"
            panel.barh(
                row, seconds, 0.66, left=left, color=colors[epoch], edgecolor="white", linewidth=0.8, label=label
            )
            left += seconds
        times = [run.seconds for run in each]
        panel.plot([min(times), max(times)], [row, row], color="black", linewidth=1.2, label=None if row else "range")
        panel.text(max(left, *times) + 0.01 * longest, row, f"{np.median(times):.1f} s", va="center", fontsize=9)
        bound, simulated = forecasts[name].bound, forecasts[name].seconds
        edges = [row - 0.42, row + 0.42]
        panel.plot([bound] * 2, edges, color="#d62728", linewidth=1.8, label=None if row else "lower bound")
        panel.plot(
            [simulated] * 2, edges, color="#e07b20", linewidth=1.8, linestyle=":", label=None if row else "simulated"
        )
    steps = {name: float(each[0].document.workload.emulation.seconds) * 1e3 for name, each in runs.items()}
    labels = [f"{name}, {milliseconds:g} ms a step" for name, milliseconds in steps.items()]
    panel.set_yticks(np.arange(len(runs)), labels)
    panel.set_ylim(len(runs) - 0.4, -0.6)
    panel.set_xlim(0, longest * 1.12)
    panel.set_xlabel("seconds")
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_title("\n".join(textwrap.wrap(title, 90)), fontsize=9, loc="left")
    figure.legend(loc="outside lower center", ncols=most + 3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
