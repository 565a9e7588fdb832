"""The plot of how long steps wait and take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from voxload.benchmark.measures import number
from voxload.benchmark.record import Steps
from voxload.benchmark.report.colours import SERIES
from voxload.benchmark.report.picture import Picture, blank, legend, tidy
from voxload.benchmark.report.result import Result
from voxload.text import drawn

MARKED = (50, 90, 99)
"""Percentiles with a mark on each line."""
_SHARES = np.unique(np.concatenate([np.linspace(0, 0.99, 100), np.linspace(0.99, 1, 41)]))
"""Where a line has its points: as many of a thousand steps as of a million."""
_LEAST = 1e-3
"""Milliseconds that shorter times are drawn at, since the axis is logarithmic."""
_STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True, slots=True)
class _Times:
    """Milliseconds of all steps after the warm-up, of all runs and ranks."""

    stall: npt.NDArray[np.float64]
    step: npt.NDArray[np.float64]


def latency_picture(results: Sequence[Result]) -> Picture:
    """Return which share of the steps waited, and took, how long at most: a line for each result."""
    times = [_times(result) for result in results]
    figure = blank(4.6 + 0.19 * len(results))
    stalls, steps = figure.subplots(2, 1)
    _draw(stalls, results, [found.stall for found in times])
    _draw(steps, results, [found.step for found in times])
    stalls.set(title=_title("Stall: waiting for the batch", [found.stall for found in times]))
    steps.set(title=_title("Whole step: stall, computing, waiting for ranks", [found.step for found in times]))
    legend(figure, stalls, columns=1)
    for panel in (stalls, steps):
        tidy(panel)
        _scale(panel)
    return Picture(
        "latency",
        "How long steps wait and take",
        "Share of the steps of all runs and ranks, after the warm-up, that took at most so long. Dots are the "
        f"percentiles {', '.join(map(str, MARKED))}. Times below a microsecond are drawn at one.",
        "; ".join(
            f"{result.name}: {_words('stall', found.stall)}, {_words('step', found.step)}"
            for result, found in zip(results, times, strict=True)
        ),
        figure,
    )


def _times(result: Result) -> _Times:
    warmup = result.document.workload.length.warmup
    steps = [epoch.steps for run in result.document.runs for record in run.records for epoch in record.epochs]
    return _Times(_milliseconds(steps, "stall", warmup), _milliseconds(steps, "durations", warmup))


def _milliseconds(steps: Sequence[Steps], name: str, warmup: int) -> npt.NDArray[np.float64]:
    return 1e3 * np.concatenate([np.asarray(getattr(epoch, name), np.float64)[warmup:] for epoch in steps])


def _draw(panel: Axes, results: Sequence[Result], times: Sequence[npt.NDArray[np.float64]]) -> None:
    panel.set(xscale="log", xlabel="milliseconds", ylabel="share of steps, %", ylim=(0, 102))
    for place, (result, found) in enumerate(zip(results, times, strict=True)):
        if not found.size:
            continue
        colour, style = SERIES[place % len(SERIES)].light, _STYLES[place // len(SERIES) % len(_STYLES)]
        line = np.maximum(np.quantile(found, _SHARES), _LEAST)
        panel.plot(line, 100 * _SHARES, style, color=colour, linewidth=1.5, label=drawn(result.short))
        marks = np.maximum(np.percentile(found, MARKED), _LEAST)
        panel.plot(marks, MARKED, "o", color=colour, markersize=4)


def _title(text: str, times: Sequence[npt.NDArray[np.float64]]) -> str:
    """Return a title, with the percentiles where there is one line."""
    if len(times) > 1 or not times[0].size:
        return text
    found = zip(MARKED, np.percentile(times[0], MARKED), strict=True)
    return f"{text}\n{', '.join(f'p{rank} {number(value)}' for rank, value in found)} ms"


def _scale(panel: Axes) -> None:
    """Write plain numbers below a logarithmic axis: each decade, of few decades parts of them too."""
    low, high = panel.get_xlim()
    parts = (1.0,) if high / low > 100 else (1.0, 2.0, 5.0) if high / low > 6 else (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
    panel.xaxis.set_major_locator(LogLocator(subs=parts))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _words(noun: str, times: npt.NDArray[np.float64]) -> str:
    if not times.size:
        return f"no {noun} after the warm-up"
    found = np.percentile(times, MARKED)
    return ", ".join(f"{noun} p{rank} {number(value)} ms" for rank, value in zip(MARKED, found, strict=True))
