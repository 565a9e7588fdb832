"""The plot of what each rank did when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from voxload.benchmark.measures import number
from voxload.benchmark.record import Record
from voxload.benchmark.report.colours import COMPUTE, PEERS, STALL
from voxload.benchmark.report.picture import Picture, blank, legend, tidy
from voxload.benchmark.report.result import Result

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
        _draw(panel, row, shares(record, edges), edges)
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
        "; ".join(_words(record) for record in shown),
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


def _draw(panel: Axes, row: int, found: _Shares, edges: npt.NDArray[np.float64]) -> None:
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


def _words(record: Record) -> str:
    stall, compute, peers = (
        sum(sum(getattr(epoch.steps, name)) for epoch in record.epochs) for name in ("stall", "compute", "peers")
    )
    return (
        f"rank {record.rank}: computing {number(compute)} s, waiting for data {number(stall)} s, "
        f"waiting for ranks {number(peers)} s"
    )
