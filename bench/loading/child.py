"""The process of a run: what it imports and lists is done before it says that it is ready; then it loads when asked."""

from __future__ import annotations

import faulthandler
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import h5py  # noqa: F401 - not when voxload opens a first file: nobody else's imports are timed
import zarr  # noqa: F401 - as above

from voxload.benchmark.loaders import registry
from voxload.benchmark.loaders.own import LoneGrid, OwnKind, OwnLoading
from voxload.benchmark.loaders.protocol import LoaderKind, Task
from voxload.benchmark.loaders.volumes import dataset_of, volumes_of
from voxload.benchmark.measure.rank_group import RankGroup
from voxload.benchmark.run.job import checker
from voxload.benchmark.run.rank import RankRun, RunContext
from voxload.benchmark.workload.workload import Workload
from voxload.grid import ProcessGrid

LIMIT = 600.0
"""Seconds after which a run says where it is, and ends."""


class OwnByDefault(OwnKind):
    """voxload as its loader is by default, which no number of threads says."""

    def build(self, task: Task) -> OwnLoading:
        """See LoaderKind."""
        return OwnLoading(task, self.readers)


def ready(text: str) -> Callable[[str], dict[str, Any]]:
    """Return what runs workloads over the samples of one, all given as JSON, and returns the record of each.

    It is the last rank of the workload's job, and alone.
    """
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    first = Workload.from_json(text)
    kind: LoaderKind = registry.named(first.supply.loader)
    if isinstance(kind, OwnKind):
        kind = OwnByDefault(kind.name, kind.title, kind.readers)
    registry.prepare(kind)
    grid = ProcessGrid(first.share.spatial, first.share.ranks_of, first.share.ranks_of - 1)
    # Others are told what the samples are; voxload, which gets their list alone, opens them when the clock runs.
    is_own = isinstance(kind, OwnKind)
    data = dataset_of(first, LoneGrid(place=grid) if is_own and grid.world_size > 1 else grid)
    volumes = () if is_own else volumes_of(data)

    def answer(told: str) -> dict[str, Any]:
        task = Task(Workload.from_json(told), grid, data, volumes)
        check = checker(task) if task.workload.verify else None
        context = RunContext(kind, RankGroup(None, rank=0, size=1), lambda _: math.nan, check)
        return asdict(RankRun(task, context).run(lambda _: None))

    return answer
