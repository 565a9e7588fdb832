"""Classes: predicted classes of voxels, and their Dice where there are labels."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from voxload.errors import DataError, UsageError
from voxload.grid import ProcessGrid
from voxload.inference.data import Batch, InferenceData
from voxload.inference.notes import summed
from voxload.inference.result import InferenceResult
from voxload.inference.store import PREDICTIONS, PredictionStore
from voxload.inference.tables import write_tables

DICE = "dice.csv"
"""File name in the output folder."""


class Classes:
    """See Predictor. Volumes of the smallest unsigned type that holds the classes; Dice by sample and class.

    Parameters
    ----------
    data
        The samples.
    grid
        The ranks.
    classes
        How many classes there are, the background, 0, among them.
    output
        Folder for volumes and table; all ranks see it.
    """

    def __init__(self, data: InferenceData, grid: ProcessGrid, *, classes: int, output: Path) -> None:
        self._data, self._grid, self._output = data, grid, output
        self._classes = classes
        self._dtype = np.min_scalar_type(classes - 1)
        self._store = PredictionStore(output, data.extents, grid, dtype=self._dtype)
        self._noted: dict[str, Tensor] = {}

    def take(self, batch: Batch, outputs: Tensor) -> None:
        """See Predictor."""
        found = outputs.argmax(1).cpu()
        for sample, classes in zip(batch.samples, found, strict=True):
            self._store.write(sample, classes.numpy().astype(self._dtype))
        if batch.labels is not None:
            for sample, classes, labels in zip(batch.samples, found, batch.labels.cpu(), strict=True):
                self._noted[sample] = _counts(classes, self._checked(sample, labels), self._classes)

    def finish(self) -> InferenceResult:
        """See Predictor."""
        labelled = self._data.labelled
        noted = summed(self._noted, labelled, grid=self._grid)
        dice = {sample: _dice(counts) for sample, counts in noted.items()}
        if self._grid.rank == 0:
            (self._output / DICE).unlink(missing_ok=True)  # of other predictions than those that come now
        self._store.publish()
        foreground = tuple(range(1, self._classes))
        if self._grid.rank == 0 and labelled:
            columns: dict[str, list[str] | list[float]] = {"sample": list(labelled)}
            columns |= {f"dice_{one}": [dice[sample][one - 1] for sample in labelled] for one in foreground}
            write_tables(columns | {"mean": [fmean(dice[sample]) for sample in labelled]}, self._output / DICE)
        return InferenceResult(
            samples=len(self._data.samples),
            spatial=self._grid.spatial,
            groups=self._grid.groups,
            files=(PREDICTIONS, DICE) if labelled else (PREDICTIONS,),
            classes=foreground,
            dice=tuple(map(fmean, zip(*dice.values(), strict=True))),
            labelled=len(labelled),
        )

    def _checked(self, sample: str, labels: Tensor) -> Tensor:
        """Return the class of each voxel, ``(d, h, w)``; raises UsageError or DataError when labels are none."""
        subject = f"labels of sample {sample!r}"
        if labels.shape[0] != 1 or labels.is_floating_point():
            found = f"{labels.dtype} of {labels.shape[0]} channels"
            raise UsageError(subject, found=found, expected="one channel of integers")
        low, high = (int(end) for end in labels.long().aminmax())
        if low < 0 or high >= self._classes:
            raise DataError(
                subject,
                found=f"values from {low} to {high}",
                expected=f"0 to {self._classes - 1}, the classes of the network",
                remedy="name other labels with --labels, or mend them",
            )
        return labels[0].long()


def _counts(found: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return how many voxels of each foreground class both, the prediction and the labels have, as three rows."""
    both = torch.where(found == labels, found, 0)
    counts = [torch.bincount(part.flatten(), minlength=classes)[1:] for part in (both, found, labels)]
    return torch.stack(counts)


def _dice(counts: Tensor) -> tuple[float, ...]:
    """Return the Dice of each class; 1 where a class is in neither: nothing was there, and nothing was found."""
    both, found, labels = counts.double()
    sizes = found + labels
    return tuple(torch.where(sizes > 0, 2 * both / sizes, torch.ones_like(sizes)).tolist())
