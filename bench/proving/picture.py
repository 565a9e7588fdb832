"""Picture: copies and computation as bars over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.proving.clock import Span
from voxload.files.atomic import replacing

_ROWS = {"compute": ("#1f5fa8", "white"), "copy": ("#e07b20", "#e07b20")}
"""Colours of bars and of their edges: steps are told apart, and a copy is seen however short it is."""
_SHOWN = 12
"""Steps that are drawn: of more, a bar is too thin to be seen."""


def draw(spans: Sequence[Span], path: Path, *, title: str) -> None:
    """Draw the steps in the middle of an epoch, with the copies meanwhile."""
    computed = [span for span in spans if span.what == "compute"]
    middle = max(0, len(computed) - _SHOWN) // 2
    chosen = computed[middle : middle + _SHOWN]
    begin, end = chosen[0].start, chosen[-1].stop
    figure = Figure(figsize=(11, 2.6), layout="constrained")
    panel = figure.subplots()
    for row, (what, (colour, edge)) in enumerate(_ROWS.items()):
        shown = [span for span in spans if span.what == what and span.stop > begin and span.start < end]
        bars = [((span.start - begin) * 1e3, (span.stop - span.start) * 1e3) for span in shown]
        panel.broken_barh(bars, (row - 0.35, 0.7), color=colour, edgecolor=edge, linewidth=0.7)
    panel.set(title=title, xlabel="milliseconds", yticks=range(len(_ROWS)), yticklabels=list(_ROWS))
    panel.set_xlim(0, (end - begin) * 1e3)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="x", alpha=0.25)
    FigureCanvasAgg(figure)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
