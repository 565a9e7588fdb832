"""Ranks of a run of predictions, started here or by a launcher: ``python -m voxload.inference.worker PLAN``.

The first rank of each sample group writes a line of JSON per batch to standard output, and rank 0 one at the beginning
and one with the result, once all files are in place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid, launched_as
from voxload.inference.data import InferenceData, Predicted
from voxload.inference.model import Trained, read_together
from voxload.inference.patches import Stitcher
from voxload.inference.plan import ZARR, InferencePlan
from voxload.inference.predictors import Predictor, RegressionPredictor, SegmentationPredictor
from voxload.inference.result import InferenceResult
from voxload.inference.store import remove_leftovers
from voxload.launch.devices import ON_HOST, check_own, check_there, rank_device
from voxload.launch.processes import Hear, emit, launch_ranks, run_rank
from voxload.launch.rendezvous import process_group
from voxload.training.plan import UNET3D

Tell = Callable[[dict[str, Any]], None]
"""Hears of what happened, as values that are fit for JSON."""


class Inference:
    """A network and what it predicts from, on one rank; every rank of the job makes one, executes and closes it.

    No rank of a sample group reads or computes more than its block of a sample, and what its layers reach beyond it.

    Parameters
    ----------
    plan
        What to predict.
    grid
        The ranks; torch.distributed is initialised when there are several.
    device
        What this rank computes on; the host by default.

    Raises
    ------
    UsageError
        When plan, checkpoint, catalogue and grid do not fit each other.
    DataError
        When the checkpoint is damaged.
    """

    def __init__(self, plan: InferencePlan, grid: ProcessGrid, *, device: torch.device = ON_HOST) -> None:
        self._start = perf_counter()
        self._plan, self._grid = plan, grid
        self._trained = read_together(plan, grid)
        self._data = InferenceData(plan, self._trained, grid, device=device)
        tiling = self._data.tiling
        shapes = sorted(set(self._data.extents.values())) if tiling is None else [tiling.patch]
        self._models = self._trained.networks(grid, shapes, device=device)

    @torch.no_grad()
    def execute(self, tell: Tell) -> InferenceResult:
        """Predict every sample once, write the files and return the result, equal on every rank but for its duration.

        `tell` hears on the first rank how many samples there are, and on the first rank of each group, batch by batch,
        of how many were predicted.
        """
        if self._grid.rank == 0:
            tell({"event": "begin", "samples": len(self._data.samples)})
        predictor = self._predictor(self._trained, Path(self._plan.output))
        for found in self._predicted():
            predictor.take(found)
            if self._grid.rank == self._grid.group_ranks[0]:
                tell({"event": "predicted", "samples": len(found.samples)})
        result = predictor.finish()
        return replace(result, seconds=perf_counter() - self._start)

    def _predicted(self) -> Iterator[Predicted]:
        """Yield what the network gives for whole samples, batch by batch, or put together from patches."""
        tiling = self._data.tiling
        if tiling is None:
            for batch in self._data:
                model = self._models[self._data.extents[batch.samples[0]]]
                yield Predicted(batch.samples, model(batch.volumes.to(self._trained.dtype)), batch.labels)
            return
        stitcher: Stitcher | None = None
        for part in self._data.patches():
            stitcher = stitcher or Stitcher(self._data.extents[part.sample], tiling)
            stitcher.take(part, self._models[tiling.patch](part.volumes.to(self._trained.dtype)))
            if part.tile.is_last:
                yield Predicted((part.sample,), stitcher.outputs(), stitcher.labels)
                stitcher = None

    def close(self) -> None:
        """Close loaders and data: no thread, shared memory or connection is left."""
        self._data.close()

    def _predictor(self, trained: Trained, output: Path) -> Predictor:
        form = self._plan.format
        if trained.plan.model == UNET3D:
            return SegmentationPredictor(self._data, self._grid, classes=trained.plan.classes, output=output, form=form)
        if form != ZARR:
            raise UsageError(
                "--format",
                found=f"{form} for {trained.plan.model}",
                expected="none: its targets are a table",
                remedy="leave out --format",
            )
        return RegressionPredictor(trained, self._data, self._grid, output=output)


def launch_inference(plan: InferencePlan, *, processes: int, hear: Hear) -> InferenceResult:
    """Run `plan` on as many local processes and return its result; the processes end when this call ends.

    Raises
    ------
    UsageError
        Before anything is started when the grid does not fit the processes, or there are too few GPUs; later
        what the ranks found wrong.
    DataError
        Whatever was wrong with data or storage.
    InternalError
        When a process dies without an error of its own; the message ends with the last line it wrote.
    """
    ProcessGrid(spatial=plan.spatial, world_size=processes, rank=0)
    check_there(plan.device, ranks=processes)
    results: list[InferenceResult] = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "result":
            results.append(InferenceResult.from_dict({name: value for name, value in event.items() if name != "event"}))
        else:
            hear(event)

    try:
        launch_ranks("voxload.inference.worker", plan.to_json(), processes=processes, subject="inference", hear=listen)
    except BaseException:
        remove_leftovers(Path(plan.output))  # the ranks have ended, and had no time to do so
        raise
    if not results:
        raise InternalError("inference", found="ranks that ended without a result")
    return results[0]


COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""How long a rank waits for all others: sample groups meet at the end only, and one may have a batch more to do."""


def infer(text: str) -> None:
    """Predict as one rank of the job, by a plan as InferencePlan.to_json writes it."""
    result = infer_rank(InferencePlan.from_json(text), emit)
    if result is not None:
        emit({"event": "result", **result.to_dict()})


def infer_rank(plan: InferencePlan, hear: Tell) -> InferenceResult | None:
    """Predict as the rank of the job that the launcher made of this process; rank 0 returns the result.

    Raises
    ------
    UsageError
        When ranks, plan and data do not fit each other.
    """
    rank, world_size = launched_as(os.environ)
    grid = ProcessGrid(spatial=plan.spatial, world_size=world_size, rank=rank)
    device = rank_device(plan.device)
    with process_group(rank, world_size, timeout=COLLECTIVE_TIMEOUT, kind=device.type):
        check_own(device)
        with closing(Inference(plan, grid, device=device)) as run:
            result = run.execute(hear)
    return result if rank == 0 else None


if __name__ == "__main__":
    sys.exit(run_rank("voxload.inference.worker", sys.argv[1:], infer))
