"""Speed plots: throughput by ranks, and how long steps wait and take."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from voxload.benchmark.measure.record import Steps
from voxload.benchmark.report.picture import LINE, MUTED, SERIES, Picture, blank, legend, note, tidy, write_plainly
from voxload.benchmark.report.result import Result
from voxload.benchmark.results.alike import page_cache
from voxload.benchmark.results.compare import flat
from voxload.benchmark.results.measures import number
from voxload.files.pictures import drawing
from voxload.text import drawn

if TYPE_CHECKING:  # of the extra `plots`
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

SPEED = "samples_per_second"
_SCALE = ("share.spatial", "share.ranks_of", "share.seed", "emulation.seed", "length.epochs", "length.steps")
"""What may differ along a line: how many ranks there are, and what goes with that."""
_MARKERS = "osD^vP"
_TICKS = 8
"""About as many numbers as fit below the axis."""

_WIDE = 8
"""From how many times more ranks on throughput is drawn on a logarithmic axis: small jobs would lie on the ground."""


def throughput_picture(results: Sequence[Result]) -> Picture:
    """Return throughput over ranks, a line for each workload; of one number of ranks a bar for each result."""
    is_scaling = len({result.document.ranks for result in results}) > 1
    series = _series(results)
    figure = blank(2.7 + 0.2 * len(series) if is_scaling else 1.1 + 0.42 * len(results))
    panel = figure.subplots()
    if is_scaling:
        _draw_lines(panel, series)
        legend(figure, panel, columns=1)
        tidy(panel)
    else:
        _draw_bars(panel, results)
        tidy(panel, grid="x")
    how = "Lines join medians" if is_scaling else "Bars are medians"
    ideal = " The dashed line is that of the fewest ranks, in proportion." if is_scaling else ""
    return Picture(
        "throughput",
        "Throughput by ranks",
        f"Samples that all ranks together delivered in a second. {how} of the repetitions, which are dots.{ideal}",
        "; ".join(
            f"{result.name}: {number(result.document.median(SPEED))} samples/s on {result.document.ranks} ranks"
            for result in results
        ),
        figure,
    )


def _draw_lines(panel: Axes, series: dict[str, list[Result]]) -> None:
    for place, (name, results) in enumerate(series.items()):
        colour, marker = SERIES[place % len(SERIES)].light, _MARKERS[place % len(_MARKERS)]
        ranks = [result.document.ranks for result in results]
        middles = [result.document.median(SPEED) for result in results]
        panel.plot(ranks, middles, marker=marker, color=colour, markersize=5, linewidth=1.6, label=drawn(name))
        for count, result in zip(ranks, results, strict=True):
            speeds = result.document.values(SPEED)
            panel.plot([count] * len(speeds), speeds, ".", color=colour, markersize=3.5, alpha=0.6)
    least = min((result for results in series.values() for result in results), key=lambda found: found.document.ranks)
    counts = sorted({result.document.ranks for results in series.values() for result in results})
    each = least.document.median(SPEED) / least.document.ranks
    panel.plot(counts, [each * count for count in counts], "--", color=MUTED.light, linewidth=1, label="in proportion")
    panel.set_xscale("log", base=2)
    ticks = _ticks(counts)
    panel.set_xticks(ticks, [str(count) for count in ticks])
    panel.minorticks_off()
    panel.set(xlabel="ranks", ylabel="samples per second")
    if counts[-1] >= _WIDE * counts[0] and each > 0:
        panel.set_yscale("log")
        _plain(panel.yaxis)
    else:
        panel.set_ylim(bottom=0)


def _ticks(counts: Sequence[int]) -> list[int]:
    """Return those of ascending numbers that are far enough apart to be written below a logarithmic axis."""
    apart = math.log2(counts[-1] / counts[0]) / _TICKS
    found = [counts[0]]
    for count in counts[1:]:
        if math.log2(count / found[-1]) >= apart:
            found.append(count)
    return found


def _draw_bars(panel: Axes, results: Sequence[Result]) -> None:
    for place, result in enumerate(results):
        colour = SERIES[place % len(SERIES)].light
        speeds, middle = result.document.values(SPEED), result.document.median(SPEED)
        panel.barh(place, middle, height=0.62, color=colour, alpha=0.55, linewidth=0)
        panel.plot(speeds, [place] * len(speeds), "o", color=colour, markersize=4, markeredgecolor=LINE.light)
        note(panel, number(middle), (max(speeds), place))
    caches = [page_cache(result.document) for result in results]
    # Bars of runs that began cold and of others stand beside each other: each says which it is.
    said = [f", {cache}" if len(set(caches)) > 1 else "" for cache in caches]
    names = [f"{one.short}\n{one.document.ranks} ranks{state}" for one, state in zip(results, said, strict=True)]
    panel.set_yticks(range(len(results)), names)
    panel.invert_yaxis()
    panel.set(xlabel="samples per second")
    panel.set_xlim(0, 1.2 * max(max(result.document.values(SPEED)) for result in results))


def _series(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return results that differ in scale alone, by what tells them from the others, each by ranks."""
    facts = [_facts(result) for result in results]
    told = [name for name in facts[0] if len({found.get(name) for found in facts}) > 1 and name != "supply.loader"]
    series: dict[str, list[Result]] = {}
    names: dict[str, str] = {}
    for result, found in zip(results, facts, strict=True):
        key = json.dumps(found, sort_keys=True)
        parts = [found["supply.loader"], *(f"{name.split('.')[-1]} {found.get(name)}" for name in told)]
        names[key] = ", ".join(parts)
        series.setdefault(key, []).append(result)
    return {names[key]: sorted(found, key=lambda result: result.document.ranks) for key, found in series.items()}


def _facts(result: Result) -> dict[str, str]:
    facts = flat(asdict(result.document.workload)) | {"page cache": page_cache(result.document)}
    return {name: value for name, value in facts.items() if name not in _SCALE}


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
    panel.xaxis.set_major_locator(drawing("matplotlib.ticker").LogLocator(subs=parts))
    _plain(panel.xaxis)


def _plain(axis: Axis) -> None:
    """Write plain numbers along an axis, none between its major ticks."""
    write_plainly(axis)
    axis.set_minor_formatter(drawing("matplotlib.ticker").NullFormatter())


def _words(noun: str, times: npt.NDArray[np.float64]) -> str:
    if not times.size:
        return f"no {noun} after the warm-up"
    found = np.percentile(times, MARKED)
    return ", ".join(f"{noun} p{rank} {number(value)} ms" for rank, value in zip(MARKED, found, strict=True))
