"""Inference: one rank's pass over all samples of a catalogue, from a plan to files and figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from voxload.devices import ON_HOST
from voxload.grid import ProcessGrid
from voxload.inference.data import InferenceData
from voxload.inference.model import Trained, read_together
from voxload.inference.plan import InferencePlan
from voxload.inference.predictor import Predictor
from voxload.inference.regression import Numbers
from voxload.inference.result import InferenceResult
from voxload.inference.segmentation import Classes
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
        self._models = self._trained.networks(grid, sorted(set(self._data.extents.values())), device=device)

    @torch.no_grad()
    def execute(self, tell: Tell) -> InferenceResult:
        """Predict every sample once, write the files and return the result, equal on every rank but for its duration.

        `tell` hears on the first rank how many samples there are, and on the first rank of each group, batch by batch,
        of how many were predicted.
        """
        if self._grid.rank == 0:
            tell({"event": "begin", "samples": len(self._data.samples)})
        predictor = self._predictor(self._trained, Path(self._plan.output))
        for batch in self._data:
            model = self._models[self._data.extents[batch.samples[0]]]
            predictor.take(batch, model(batch.volumes.to(self._trained.dtype)))
            if self._grid.rank == self._grid.group_ranks[0]:
                tell({"event": "predicted", "samples": len(batch.samples)})
        result = predictor.finish()
        return replace(result, seconds=perf_counter() - self._start)

    def close(self) -> None:
        """Close loaders and data: no thread, shared memory or connection is left."""
        self._data.close()

    def _predictor(self, trained: Trained, output: Path) -> Predictor:
        if trained.plan.model == UNET3D:
            return Classes(self._data, self._grid, classes=trained.plan.classes, output=output)
        return Numbers(trained, self._data, self._grid, output=output)
