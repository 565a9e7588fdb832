"""The plot of read amplification."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from voxload.benchmark.measures import BYTES, number
from voxload.benchmark.report.colours import COMPUTE, PEERS, SOURCES, STALL
from voxload.benchmark.report.picture import TICKS, Picture, blank, legend, note, tidy
from voxload.benchmark.report.result import Result

_COLOURS = (COMPUTE, STALL, PEERS, SOURCES["disk"])
_HEIGHT = 0.2


def amplification_picture(results: Sequence[Result]) -> Picture:
    """Return four bars for each result: bytes delivered, asked of the storage, returned by read calls, from devices."""
    figure = blank(1.3 + 0.85 * len(results))
    panel = figure.subplots()
    values = [[measure.median(result.document) for measure in BYTES] for result in results]
    for place, (measure, colour) in enumerate(zip(BYTES, _COLOURS, strict=True)):
        lengths = [found[place] for found in values]
        places = [row + (place - 1.5) * _HEIGHT for row in range(len(results))]
        drawn = [0.0 if math.isnan(length) else length for length in lengths]
        panel.barh(places, drawn, height=_HEIGHT * 0.9, color=colour.light, linewidth=0, label=measure.label)
        for row, length in enumerate(lengths):
            _name(panel, places[row], length, whole=values[row][0])
    most = max((length for found in values for length in found if math.isfinite(length)), default=0.0)
    panel.set_yticks(range(len(results)), [result.short for result in results])
    panel.invert_yaxis()
    panel.set(xlabel="GB of a run, all ranks (1e9 bytes)", xlim=(0, 1.25 * most or 1))
    panel.xaxis.set_major_locator(MaxNLocator(TICKS))
    legend(figure, panel, columns=2)
    tidy(panel, grid="x")
    return Picture(
        "amplification",
        "Read amplification",
        "Bytes handed to the consumers, and what was read for them: as the loader asks, as read calls returned, and "
        "as devices gave. Beside a bar is its ratio to what was delivered.",
        "; ".join(_words(result, found) for result, found in zip(results, values, strict=True)),
        figure,
    )


def _name(panel: Axes, place: float, length: float, *, whole: float) -> None:
    text = "not counted" if math.isnan(length) else f"{length / whole:.2f}x" if whole else ""
    note(panel, text, (0.0 if math.isnan(length) else length, place))


def _words(result: Result, values: Sequence[float]) -> str:
    parts = (f"{measure.label} {number(value)} GB" for measure, value in zip(BYTES, values, strict=True))
    return f"{result.name}: {', '.join(parts)}"
