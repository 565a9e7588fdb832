"""The picture of a simulation: time by policy, with the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from voxload.atomic import replacing
from voxload.cli.policy_tables import seconds_unit
from voxload.prefetch.simulate import Outcome
from voxload.prefetch.simulation.bound import Bound

_BLUE, _ORANGE, _GREY = "#1f5fa8", "#e07b20", "#5a5f68"


@dataclass(frozen=True, slots=True)
class Panel:
    """One workload."""

    title: str
    outcomes: Sequence[Outcome]
    bound: Bound


def draw_policies(panels: Sequence[Panel], path: Path, *, title: str) -> None:
    """Draw a bar of compute and stall for each policy, one panel for each workload, the bound across."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    most = max(len(panel.outcomes) for panel in panels)
    figure = Figure(figsize=(6.8 * columns, 1.2 + rows * (1.5 + 0.36 * most)), layout="constrained")
    figure.suptitle(title, fontsize=12)
    places = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axes, panel in zip(places, panels, strict=False):
        _draw(axes, panel)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    handles, labels = places[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=3, fontsize=9, loc="outside lower center")
    FigureCanvasAgg(figure)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)


def _draw(axes: Axes, panel: Panel) -> None:
    longest = max(outcome.seconds for outcome in panel.outcomes)
    factor, unit = seconds_unit(longest)
    places = range(len(panel.outcomes))
    compute = [outcome.compute / factor for outcome in panel.outcomes]
    stall = [outcome.stall / factor for outcome in panel.outcomes]
    axes.barh(places, compute, color=_BLUE, height=0.66, label="computing")
    axes.barh(places, stall, left=compute, color=_ORANGE, height=0.66, label="waiting for data")
    axes.axvline(panel.bound.seconds / factor, color=_GREY, linestyle="--", linewidth=1.3, label="no policy is faster")
    for place, outcome in zip(places, panel.outcomes, strict=True):
        end = outcome.seconds / factor
        share = f"{outcome.seconds / panel.bound.seconds:.2f}x" if panel.bound.seconds else ""
        axes.text(end + longest / factor * 0.012, place, share, va="center", fontsize=8, color=_GREY)
    axes.set_yticks(places, [outcome.policy for outcome in panel.outcomes], fontsize=9)
    axes.invert_yaxis()
    axes.set_title(panel.title, fontsize=10)
    axes.set(xlabel=unit, xlim=(0, max(longest, panel.bound.seconds) / factor * 1.1 or 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
