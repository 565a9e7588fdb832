"""Outcomes of a simulation, by policy, for people: a table that fits 80 columns, or a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.files.pictures import blank, write_png
from voxload.prefetch.events import SourceKind
from voxload.prefetch.simulate import Outcome
from voxload.prefetch.simulation.bound import Bound

if TYPE_CHECKING:  # of the extra `plots`
    from matplotlib.axes import Axes

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


_SECONDS = ((36000.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
"""From how many seconds on which unit serves."""
_SOURCES = (SourceKind.STORAGE, SourceKind.MEMORY, SourceKind.DISK, SourceKind.PEER)


def policy_table(title: str, outcomes: Sequence[Outcome]) -> Table:
    """Return time, stall and bytes of each policy, each column in one unit."""
    factor, unit = seconds_unit(max(outcome.seconds for outcome in outcomes))
    size, size_unit = _bytes_unit(max(max(outcome.bytes_by_source.values()) for outcome in outcomes))
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    times = (f"time\n{unit}", "over\nbound", f"stall\n{unit}", "AU")
    for name in ("policy", *times, *(f"{source.value}\n{size_unit}" for source in _SOURCES), f"stored\n{size_unit}"):
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(
            outcome.policy,
            _number(outcome.seconds / factor),
            f"{outcome.seconds / outcome.bound.seconds:.2f}" if outcome.bound.seconds else "-",
            _number(outcome.stall / factor),
            f"{outcome.accelerator_utilisation:.0%}",
            *(_number(outcome.bytes_by_source[source] / size) for source in _SOURCES),
            _number(sum(outcome.stored_bytes.values()) / size),
        )
    models = ", ".join(sorted({outcome.model.value for outcome in outcomes}))
    table.caption = f"bytes by source, and stored in tiers, of all ranks; model: {models}"
    table.caption_justify = "left"
    return table


def seconds_unit(seconds: float) -> tuple[float, str]:
    """Return the seconds of the unit in which a duration is best told, and its name.

    >>> seconds_unit(500), seconds_unit(1200), seconds_unit(1e6)
    ((1.0, 's'), (60.0, 'min'), (3600.0, 'h'))
    """
    return next((factor, unit) for least, factor, unit in _SECONDS if seconds >= least)


def _bytes_unit(nbytes: int) -> tuple[int, str]:
    exponent = min(max(0, (nbytes.bit_length() - 1) // 10), len(_UNITS) - 1)
    return 2 ** (10 * exponent), _UNITS[exponent]


def _number(value: float) -> str:
    """Return three digits or all before the point; nothing is a dash, so that little is told from none."""
    if value <= 0:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 else "<0.001"


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
    figure = blank(6.8 * columns, 1.2 + rows * (1.5 + 0.36 * most))
    figure.suptitle(title, fontsize=12)
    places = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axes, panel in zip(places, panels, strict=False):
        _draw(axes, panel)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    handles, labels = places[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=3, fontsize=9, loc="outside lower center")
    write_png(figure, path)


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
