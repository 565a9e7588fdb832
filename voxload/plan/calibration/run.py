"""calibrate: measure this machine, and write a file that describes it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from voxload.errors import InternalError, UsageError
from voxload.grid import is_launched
from voxload.launch.devices import HOST, check_there
from voxload.launch.processes import launch_ranks
from voxload.launch.wire import decode, encode
from voxload.plan.calibration.measuring import MessagePoint
from voxload.plan.calibration.plan import CalibrationPlan, RankFindings
from voxload.plan.costs.kernels import KernelPoints
from voxload.plan.costs.surface import not_negative
from voxload.plan.platform.calibration import Calibration, LinkFit

Hear = Callable[[float], None]
"""Hears how many seconds of measuring are over."""


def calibrate(*, ranks: int = 0, seconds: float = 80.0, device: str = HOST, hear: Hear | None = None) -> Calibration:
    """Measure with processes on this machine, all of its cores or GPUs busy.

    Parameters
    ----------
    ranks
        That a node is to have; 0 for as many as there are cores, or GPUs.
    seconds
        For operations; messages take about half a minute besides on the host.
    device
        What each computes on.
    hear
        Hears of progress.

    Raises
    ------
    UsageError
        When there are fewer GPUs, or a launcher made this process one of several.
    """
    if is_launched(os.environ):
        raise UsageError(
            "calibration",
            found="a launcher's variables",
            expected="one process, which starts the others",
            remedy="run it once, on one node, without torchrun, srun or mpiexec",
        )
    own = ranks or _all(device)
    check_there(device, ranks=own)
    counts = [own, 2 * own, 4 * own] if device == HOST else [own]
    found: dict[int, list[RankFindings]] = {}
    for count in counts:
        found[count] = _measure(CalibrationPlan(seconds if count == own else 0.0, device), count, hear)
    return merged(found, own, device)


def merged(found: dict[int, list[RankFindings]], ranks: int, device: str) -> Calibration:
    """Return what ranks found together, by how many there were; `ranks` is how many timed operations."""
    first = found[ranks]
    kind = "cpu" if device == HOST else "cuda"
    return Calibration(
        ranks,
        kind,
        first[0].name,
        min(each.memory for each in first) // (ranks if kind == "cpu" else 1),
        tuple(fmean(each) for each in zip(*(rank.overheads for rank in first), strict=True)),
        tuple(_pooled(each.kernels for each in first)),
        tuple(_link(count, each) for count, each in sorted(found.items()) if count > 1),
    )


def _all(device: str) -> int:
    return len(os.sched_getaffinity(0)) if device == HOST else max(1, torch.cuda.device_count())


def _measure(plan: CalibrationPlan, ranks: int, hear: Hear | None) -> list[RankFindings]:
    found: list[RankFindings] = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "findings":
            found.extend(decode(encode(each), RankFindings) for each in event["ranks"])
        elif hear is not None:
            hear(float(event["seconds"]))

    text = encode(plan).decode()
    launch_ranks("voxload.plan.calibration.worker", text, processes=ranks, subject="calibration", hear=listen)
    if len(found) != ranks:
        raise InternalError("calibration", found=f"what {len(found)} ranks measured", expected=f"{ranks}")
    return found


def _pooled(ranks: Iterable[Sequence[KernelPoints]]) -> Iterable[KernelPoints]:
    """Yield the points of all ranks, those of the same operation as one."""
    found = defaultdict[str, dict[tuple[float, ...], list[float]]](lambda: defaultdict(list))
    for rank in ranks:
        for each in rank:
            for point, seconds in zip(each.points, each.seconds, strict=True):
                found[each.kind][point].append(seconds)
    for kind, points in sorted(found.items()):
        yield KernelPoints(kind, tuple(points), tuple(fmean(each) for each in points.values()))


def _link(count: int, ranks: Sequence[RankFindings]) -> LinkFit:
    by_size = defaultdict[int, list[float]](list)
    for rank in ranks:
        for each in rank.sums:
            by_size[each.nbytes].append(each.seconds)
    sums = tuple((nbytes, median(seconds)) for nbytes, seconds in sorted(by_size.items()))
    return LinkFit(count, *fitted([each for rank in ranks for each in rank.messages]), sums)


def fitted(points: Sequence[MessagePoint]) -> tuple[float, float, float, float]:
    """Return latency, seconds a byte sent and seconds a byte moved, none below 0, and the median error.

    Relative errors are what is least: short messages count as much as long ones.
    """
    if not points:
        raise UsageError("messages", found="none measured", expected="some", remedy="calibrate with 2 ranks or more")
    rows = np.array([(1.0, each.sent, each.moved) for each in points])
    seconds = np.array([each.seconds for each in points])
    shares = not_negative(rows, seconds)
    latency, sent, moved = map(float, shares)
    return latency, sent, moved, float(np.median(np.abs(rows @ shares / seconds - 1)))
