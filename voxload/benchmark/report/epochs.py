"""The plot of epochs: the first one fills tiers, later ones use them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from voxload.benchmark.measures import GB, number
from voxload.benchmark.record import Epoch
from voxload.benchmark.report.colours import COMPUTE, LINE, PEERS, SOURCES, STALL
from voxload.benchmark.report.picture import Picture, blank, legend, tidy
from voxload.benchmark.report.result import Result

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
        "; ".join(_words(place, found) for place, found in enumerate(totals, 1)),
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
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def _words(place: int, found: _Totals) -> str:
    parts = ", ".join(f"{label} {number(time)} s" for (label, _), time in zip(_TIMES, found.times, strict=True))
    return f"epoch {place}: {parts}, read calls {number(found.calls)} GB, devices {number(found.devices)} GB"
