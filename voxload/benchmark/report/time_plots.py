"""Plots over time: what each rank did when, and what each epoch took and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from voxload.benchmark.measure.record import Epoch, Record
from voxload.benchmark.report.picture import COMPUTE, LINE, PEERS, SOURCES, STALL, Picture, blank, legend, tidy
from voxload.benchmark.report.result import Result
from voxload.benchmark.results.measures import GB, number
from voxload.files.pictures import drawing

if TYPE_CHECKING:  # of the extra `plots`
    from matplotlib.axes import Axes

RANKS = 16
"""Most ranks that are drawn; of more, some that are evenly spaced."""
_BINS = 160
"""Bins of the time: a few points wide each. Steps are shorter, so that shares of bins are drawn."""
_ROW = 0.8
"""Height of a rank's stripe, where stripes are 1 apart."""
_KINDS = (("computing", COMPUTE), ("waiting for ranks", PEERS), ("waiting for data", STALL))


@dataclass(frozen=True, slots=True)
class _Shares:
    """Shares of each bin, by kind, that stand on each other."""

    computing: npt.NDArray[np.float64]
    peers: npt.NDArray[np.float64]
    stall: npt.NDArray[np.float64]


def timeline_picture(result: Result, *, key: str) -> Picture:
    """Return a stripe for each rank of the middle run: when it computed, waited for data and for other ranks."""
    records = result.middle.records
    shown = [records[place] for place in _evenly(len(records), RANKS)]
    end = max((_end(record) for record in shown), default=0.0) or 1.0
    edges = np.linspace(0, end, _BINS + 1)
    figure = blank(1.5 + 0.28 * len(shown))
    panel = figure.subplots()
    for row, record in enumerate(shown):
        _draw_stripe(panel, row, shares(record, edges), edges)
    panel.set_yticks(range(len(shown)), [f"rank {record.rank}" for record in shown])
    # Turned over: rank 0 stands at the top.
    panel.set(xlabel="seconds since the run began", xlim=(0, end), ylim=(len(shown) - 0.5, -0.5))
    legend(figure, panel, columns=3)
    tidy(panel, grid="x")
    some = f" {len(shown)} of {len(records)} ranks are drawn, evenly spaced." if len(shown) < len(records) else ""
    return Picture(
        key,
        f"Timeline of {result.name}",
        "The run of middle throughput, a stripe a rank: height is the share of the time. Empty: between epochs, "
        f"or the loop itself.{some}",
        "; ".join(_timeline_words(record) for record in shown),
        figure,
    )


def shares(record: Record, edges: npt.NDArray[np.float64]) -> _Shares:
    """Return which share of each bin between `edges`, in seconds, a rank spent on what."""
    steps = [epoch.steps for epoch in record.epochs]
    begin, stall, compute, peers = (
        np.array([time for epoch in steps for time in getattr(epoch, name)], np.float64)
        for name in ("begin", "stall", "compute", "peers")
    )
    computing, waiting = begin + stall, begin + stall + compute
    return _Shares(_covered(computing, compute, edges), _covered(waiting, peers, edges), _covered(begin, stall, edges))


def _covered(
    starts: npt.NDArray[np.float64], lengths: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return which share of each bin spans cover; they are in order and do not overlap."""
    if not starts.size:
        return np.zeros(len(edges) - 1)
    totals = np.concatenate([[0.0], np.cumsum(lengths)])
    # The time covered until a moment is linear between the ends of spans.
    moments = np.stack([starts, starts + lengths], 1).ravel()
    until = np.interp(edges, moments, np.stack([totals[:-1], totals[1:]], 1).ravel())
    found: npt.NDArray[np.float64] = np.diff(until) / np.diff(edges)
    return found


def _draw_stripe(panel: Axes, row: int, found: _Shares, edges: npt.NDArray[np.float64]) -> None:
    base = np.full(_BINS, row + _ROW / 2)
    for (label, colour), share in zip(_KINDS, (found.computing, found.peers, found.stall), strict=True):
        # The axis is turned over: higher is less.
        top = base - share * _ROW
        label_once = label if row == 0 else None
        panel.stairs(top, edges, baseline=base, fill=True, color=colour.light, linewidth=0, label=label_once)
        base = top


def _end(record: Record) -> float:
    return max(
        (epoch.steps.begin[-1] + epoch.steps.durations[-1] for epoch in record.epochs if epoch.steps.begin),
        default=0.0,
    )


def _evenly(count: int, most: int) -> Sequence[int]:
    """Return places of up to `most` of `count`, first and last among them."""
    return [int(place) for place in np.unique(np.linspace(0, count - 1, min(count, most)).round())]


def _timeline_words(record: Record) -> str:
    stall, compute, peers = (
        sum(sum(getattr(epoch.steps, name)) for epoch in record.epochs) for name in ("stall", "compute", "peers")
    )
    return (
        f"rank {record.rank}: computing {number(compute)} s, waiting for data {number(stall)} s, "
        f"waiting for ranks {number(peers)} s"
    )


_TIMES = (("computing", COMPUTE), ("waiting for ranks", PEERS), ("waiting for data", STALL), ("other", LINE))

_FEW = 12
"""Epochs up to which each has its number below it."""


@dataclass(frozen=True, slots=True)
class _Totals:
    """One epoch, over all ranks."""

    times: tuple[float, float, float, float]
    """Seconds of `_TIMES`, means over ranks."""
    calls: float
    """GB that read calls returned."""
    devices: float
    """GB that devices gave."""


def epoch_picture(result: Result, *, key: str) -> Picture:
    """Return time and bytes read of each epoch of the middle run."""
    totals = [_totals(result.epochs(number)) for number in range(result.epoch_count)]
    figure = blank(4.3)
    times, nbytes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _draw_times(times, totals)
    _draw_bytes(nbytes, totals)
    legend(figure, times, columns=2)
    for panel in (times, nbytes):
        tidy(panel, grid="y")
    return Picture(
        key,
        f"Epochs of {result.name}",
        "The run of middle throughput. Above: time of each epoch, mean over ranks. Below: bytes that read calls "
        "returned, wide, and those that devices gave, narrow, all ranks.",
        "; ".join(_epoch_words(place, found) for place, found in enumerate(totals, 1)),
        figure,
    )


def _totals(epochs: tuple[Epoch, ...]) -> _Totals:
    steps = [epoch.steps for epoch in epochs]
    computing, peers, stall = (
        fmean(sum(getattr(each, name)) for each in steps) for name in ("compute", "peers", "stall")
    )
    other = max(0.0, fmean(epoch.wall for epoch in epochs) - computing - peers - stall)
    calls = sum(epoch.kernel.asked for epoch in epochs) / GB
    return _Totals((computing, peers, stall, other), calls, sum(epoch.kernel.device for epoch in epochs) / GB)


def _draw_times(panel: Axes, totals: list[_Totals]) -> None:
    base = [0.0] * len(totals)
    for place, (label, colour) in enumerate(_TIMES):
        heights = [found.times[place] for found in totals]
        panel.bar(range(1, len(totals) + 1), heights, 0.7, base, color=colour.light, linewidth=0, label=label)
        base = [below + height for below, height in zip(base, heights, strict=True)]
    panel.set(title="Time", ylabel="seconds")


def _draw_bytes(panel: Axes, totals: list[_Totals]) -> None:
    numbers = range(1, len(totals) + 1)
    panel.bar(numbers, [found.calls for found in totals], 0.7, color=SOURCES["memory"].light, linewidth=0, alpha=0.45)
    panel.bar(numbers, [found.devices for found in totals], 0.35, color=SOURCES["disk"].light, linewidth=0)
    panel.set(title="Read: by read calls (wide), from devices (narrow)", xlabel="epoch", ylabel="GB (1e9 bytes)")
    panel.set_xlim(0.4, max(len(totals), 3) + 0.6)
    if len(totals) <= _FEW:
        panel.set_xticks(numbers)
    else:
        panel.xaxis.set_major_locator(drawing("matplotlib.ticker").MaxNLocator(integer=True))


def _epoch_words(place: int, found: _Totals) -> str:
    parts = ", ".join(f"{label} {number(time)} s" for (label, _), time in zip(_TIMES, found.times, strict=True))
    return f"epoch {place}: {parts}, read calls {number(found.calls)} GB, devices {number(found.devices)} GB"
