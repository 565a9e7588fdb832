"""Tally: what the storage served, by its own log, and how often each byte of a voxel left it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bench.prefetching.samples import Extent
from tests.support.throttle.process import Served


@dataclass(frozen=True, slots=True)
class Tally:
    """One run."""

    requests: int
    data_bytes: int
    """Bytes of voxels, counted as often as they were served."""
    other_bytes: int
    """Everything else: metadata, and gaps between the chunks of a file."""
    least: int
    """How often the byte of a voxel was served that was served least."""
    most: int
    """How often the one that was served most."""


def tally(log: Iterable[Served], extents: Iterable[Extent]) -> Tally:
    """Return what a log comes to, for voxels at these places."""
    runs = list(extents)
    ends = {path: max(run.stop for run in runs if run.path == path) for path in {run.path for run in runs}}
    times = {path: np.zeros(end, np.int64) for path, end in ends.items()}
    requests = total = 0
    for one in log:
        requests += 1
        total += one.nbytes
        if one.path in times:
            times[one.path][one.start : one.stop] += 1
    parts = [times[run.path][run.start : run.stop] for run in runs]
    data = sum(int(part.sum()) for part in parts)
    return Tally(
        requests=requests,
        data_bytes=data,
        other_bytes=total - data,
        least=min(int(part.min()) for part in parts),
        most=max(int(part.max()) for part in parts),
    )
