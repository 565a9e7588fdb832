"""calibrate: measure this machine, and write a file that describes it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch

from voxload.errors import InternalError, UsageError
from voxload.grid import is_launched
from voxload.launch.devices import HOST, check_there
from voxload.launch.processes import launch_ranks
from voxload.launch.wire import decode, encode
from voxload.plan.calibration.measuring import MessagePoint, thinned
from voxload.plan.calibration.plan import CalibrationPlan, RankFindings
from voxload.plan.calibration.sharing import Copying, sharing
from voxload.plan.costs.kernels import KernelPoints, Measured, measured
from voxload.plan.costs.surface import not_negative
from voxload.plan.platform.calibration import Calibration, Sharing
from voxload.plan.trace.operation import Phase

_JOBS = 2
"""That time operations, one after the other."""
Found = dict[int, list[list[RankFindings]]]
"""What jobs found, by how many ranks each had."""
Hear = Callable[[float], None]
"""Hears how many seconds of measuring are over."""


def calibrate(*, ranks: int = 0, seconds: float = 80.0, device: str = HOST, hear: Hear | None = None) -> Calibration:
    """Measure with processes on this machine, all of its cores or GPUs busy.

    Parameters
    ----------
    ranks
        That a node is to have; 0 for as many as there are cores, or GPUs.
    seconds
        For operations; what ranks take together takes two or three minutes besides on the host.
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
            remedy="run it once, on one node, without torchrun, srun or mpiexec; then under it for links between nodes",
        )
    own = ranks or own_ranks(device)
    check_there(device, ranks=own)
    counts = {1, own, 2 * own, 4 * own} if device == HOST else {1, own}
    # Equal processes are not equally fast: operations are timed by more of them than there are cores.
    part = seconds / _JOBS
    timed = [_measure(CalibrationPlan(part, device, job), own, _behind(hear, job * part)) for job in range(_JOBS)]
    others = {count: [_measure(CalibrationPlan(0.0, device), count, hear)] for count in counts - {own}}
    return merged({own: timed, **others}, own, device)


def _behind(hear: Hear | None, before: float) -> Hear | None:
    """Return what hears of a job's progress, where others measured for so many seconds before it."""
    return None if hear is None else lambda spent: hear(before + spent)


def merged(found: Found, ranks: int, device: str) -> Calibration:
    """Return what jobs found, by how many ranks each had; those of `ranks` timed operations."""
    first = [rank for job in found[ranks] for rank in job]
    pooled = tuple(_pooled(each.kernels for each in first))
    overheads = tuple(fmean(each) for each in zip(*(rank.overheads for rank in first), strict=True))
    kernels = measured(pooled, dict(zip(Phase, overheads, strict=True)), device)
    kind = "cpu" if device == HOST else "cuda"
    return Calibration(
        ranks,
        kind,
        first[0].name,
        min(each.memory for each in first) // (ranks if kind == "cpu" else 1),
        overheads,
        pooled,
        ordered([_sharing(count, found, ranks, kernels) for count in sorted(found)], ranks),
    )


def own_ranks(device: str) -> int:
    """Return how many ranks this node has by itself: its cores, or its GPUs."""
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


def _pooled(ranks: Iterable[Sequence[KernelPoints]]) -> list[KernelPoints]:
    """Return the points of all ranks, those of the same operation as one."""
    found = defaultdict[str, dict[tuple[float, ...], list[float]]](lambda: defaultdict(list))
    for rank in ranks:
        for each in rank:
            for point, seconds in zip(each.points, each.seconds, strict=True):
                found[each.kind][point].append(seconds)
    return [thinned(kind, points) for kind, points in sorted(found.items())]


def ordered(found: Sequence[Sharing], ranks: int) -> tuple[Sharing, ...]:
    """Return what ranks take together, by ascending numbers, without what only a disturbed job can have found.

    Fewer ranks than timed operations are not slower than those, more share their cores and are as much slower at
    least, and what they lose beside that does not become less where they are more.
    """
    own = next(each.computing for each in found if each.ranks == ranks)
    kept, loss = list[Sharing](), np.inf
    for each in reversed(found):
        share = max(1.0, each.ranks / ranks)
        if each.ranks > ranks:
            loss = max(own, min(loss, each.computing / share))
            kept.append(replace(each, computing=share * loss))
        else:
            kept.append(replace(each, computing=min(own, each.computing)))
    return tuple(reversed(kept))


def _sharing(count: int, found: Found, timed: int, kernels: Measured) -> Sharing:
    """Return what so many ranks take together, where `timed` ranks timed operations."""
    ranks = [rank for job in found[count] for rank in job]
    crowd = max(1.0, count / timed)

    def copying(point: tuple[float, float]) -> float:
        return crowd * kernels.copying(point)

    together = sharing(
        count,
        [rank.steps for rank in ranks],
        per_byte=fitted([each for rank in ranks for each in rank.messages], copying)[1] if count > 1 else 0.0,
        copying=copying,
        sums=[each for rank in ranks for each in rank.sums],
        is_crowded=count > timed,
    )
    ours, theirs = (
        fmean(sum(map(sum, (each.seconds for each in rank.yardstick))) for job in found[number] for rank in job)
        for number in (count, timed)
    )
    return replace(together, computing=ours / theirs)


def fitted(points: Sequence[MessagePoint], copying: Copying) -> tuple[float, float]:
    """Return latency and seconds a byte sent, beside what joining blocks takes; none is below 0.

    Relative errors are what is least: short messages count as much as long ones.
    """
    if not points:
        raise UsageError("messages", found="none measured", expected="some", remedy="calibrate with 2 ranks or more")
    rows = np.array([(1.0, each.sent) for each in points])
    seconds = np.array([each.seconds for each in points])
    # No message is all copying.
    rest = np.maximum(seconds - [copying(each.joined) for each in points], 0.1 * seconds)
    latency, sent = map(float, not_negative(rows, rest))
    return latency, sent
