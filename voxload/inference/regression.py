"""Numbers: predicted targets of samples, beside those that the catalogue has."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from voxload.grid import ProcessGrid
from voxload.inference.data import Batch, InferenceData
from voxload.inference.model import Trained
from voxload.inference.notes import summed
from voxload.inference.result import InferenceResult
from voxload.inference.tables import write_tables

FILES = ("predictions.csv", "predictions.parquet")
"""File names in the output folder; both hold the same table."""


class Numbers:
    """See Predictor. Columns are ``sample``, then ``predicted_NAME`` and, where known, ``true_NAME`` of each target.

    Parameters
    ----------
    trained
        Names the targets and knows their scale.
    data
        The samples.
    grid
        The ranks.
    output
        Folder for the tables.
    """

    def __init__(self, trained: Trained, data: InferenceData, grid: ProcessGrid, *, output: Path) -> None:
        if trained.scale is None:
            raise TypeError("a regression has a scale")
        self._targets, self._scale = trained.targets, trained.scale
        self._data, self._grid, self._output = data, grid, output
        self._noted: dict[str, Tensor] = {}

    def take(self, batch: Batch, outputs: Tensor) -> None:
        """See Predictor; all ranks of a group have the same outputs, so that of the first one counts."""
        found = self._scale.original(outputs.double()).cpu()
        is_first = self._grid.rank == self._grid.group_ranks[0]
        self._noted |= dict(zip(batch.samples, found if is_first else torch.zeros_like(found), strict=True))

    def finish(self) -> InferenceResult:
        """See Predictor."""
        samples = self._data.samples
        found = summed(self._noted, samples, grid=self._grid)
        columns: dict[str, list[str] | list[float | None]] = {"sample": list(samples)}
        maes: list[float | None] = []
        known: list[int] = []
        for place, target in enumerate(self._targets):
            predicted = [float(found[sample][place]) for sample in samples]
            truth = [self._data.truth(sample, target) for sample in samples]
            errors = [abs(p - t) for p, t in zip(predicted, truth, strict=True) if math.isfinite(t)]
            columns[f"predicted_{target}"] = list[float | None](predicted)
            if errors:
                columns[f"true_{target}"] = [t if math.isfinite(t) else None for t in truth]
            maes.append(fmean(errors) if errors else None)
            known.append(len(errors))
        if self._grid.rank == 0:
            write_tables(columns, *(self._output / name for name in FILES))
        return InferenceResult(
            samples=len(samples),
            spatial=self._grid.spatial,
            groups=self._grid.groups,
            files=FILES,
            targets=self._targets,
            mae=tuple(maes),
            known=tuple(known),
        )
