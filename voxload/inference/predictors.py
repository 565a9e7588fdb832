"""Predictors: what becomes of the network's outputs, targets of samples or classes of voxels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from torch import Tensor

from voxload.errors import DataError, InternalError, StorageError, UsageError
from voxload.files.atomic import replacing
from voxload.grid import ProcessGrid
from voxload.inference.data import InferenceData, Predicted
from voxload.inference.model import Trained
from voxload.inference.plan import ZARR
from voxload.inference.result import InferenceResult
from voxload.inference.store import PREDICTIONS, PredictionStore
from voxload.launch.collectives import all_gathered


class Predictor(Protocol):
    """One kind of predictions; used by one thread of each rank, from the samples' first batch to the last."""

    def take(self, found: Predicted) -> None:
        """Keep or write what the network gives for this rank's blocks; groups take turns of their own.

        Raises DataError for labels that are none, StorageError when the storage refuses.
        """
        ...

    def finish(self) -> InferenceResult:
        """Put all files into place, and return the figures on every rank; all ranks call it together."""
        ...


_DTYPES = {"float64": torch.float64, "int64": torch.int64}


@dataclass(frozen=True, slots=True)
class _Note:
    """What a rank noted of a sample, for the others."""

    dtype: str
    """One of `_DTYPES`."""
    shape: tuple[int, ...]
    values: tuple[int | float, ...]

    @classmethod
    def of(cls, note: Tensor) -> _Note:
        return cls(str(note.dtype).removeprefix("torch."), tuple(note.shape), tuple(note.reshape(-1).tolist()))

    def tensor(self) -> Tensor:
        """Return the note; raises InternalError where another rank sent none."""
        if self.dtype not in _DTYPES or prod(self.shape) != len(self.values) or min(self.shape, default=0) < 0:
            raise InternalError(
                "a note of another rank",
                found=f"{len(self.values)} numbers of {self.dtype}, shape {self.shape}",
                expected=f"as many as the shape has, of {' or '.join(_DTYPES)}",
            )
        return torch.tensor(self.values, dtype=_DTYPES[self.dtype]).reshape(self.shape)


def sum_over_ranks(noted: Mapping[str, Tensor], samples: Sequence[str], *, grid: ProcessGrid) -> dict[str, Tensor]:
    """Return the sum of what the ranks of a group noted of each sample, on every rank; all ranks call it together.

    Parameters
    ----------
    noted
        This rank's notes by sample id; every rank of a group has the same ids.
    samples
        All samples, each of which one group had.
    grid
        The ranks.

    Raises
    ------
    InternalError
        On every rank, when a sample was left out or noted twice.
    """
    own = {sample: _Note.of(note) for sample, note in noted.items()}
    found: dict[str, list[Tensor]] = {sample: [] for sample in samples}
    for rank, notes in enumerate(all_gathered(own, Mapping[str, _Note])):
        for sample, note in notes.items():
            if sample not in found:
                raise InternalError(f"rank {rank}", found=f"a note of sample {sample!r}", expected="one of this job's")
            found[sample].append(note.tensor())
    odd = [sample for sample, notes in found.items() if len(notes) != grid.group_size]
    if odd:
        raise InternalError(
            f"sample {odd[0]!r}", found=f"noted by {len(found[odd[0]])} ranks", expected=f"by {grid.group_size}"
        )
    return {sample: torch.stack(notes).sum(0) for sample, notes in found.items()}


def write_tables(columns: Mapping[str, Sequence[Any]], *paths: Path) -> None:
    """Write one table to each path, as Parquet or as CSV by its suffix; None is a null, in CSV an empty field.

    Raises StorageError when the storage refuses.
    """
    table = pa.table(dict(columns))
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                if path.suffix == ".parquet":
                    pq.write_table(table, temporary, write_page_checksum=True)
                else:
                    pyarrow.csv.write_csv(table, temporary)
        except OSError as error:
            raise StorageError(
                f"writing {path}", found=str(error).splitlines()[0], remedy="make room, or choose another --output"
            ) from error


FILES = ("predictions.csv", "predictions.parquet")
"""File names in the output folder; both hold the same table."""


class RegressionPredictor:
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

    def take(self, found: Predicted) -> None:
        """See Predictor; all ranks of a group have the same outputs, so that of the first one counts."""
        numbers = self._scale.original(found.outputs.double()).cpu()
        is_first = self._grid.rank == self._grid.group_ranks[0]
        self._noted |= dict(zip(found.samples, numbers if is_first else torch.zeros_like(numbers), strict=True))

    def finish(self) -> InferenceResult:
        """See Predictor."""
        samples = self._data.samples
        found = sum_over_ranks(self._noted, samples, grid=self._grid)
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


DICE = "dice.csv"
"""File name in the output folder."""


class SegmentationPredictor:
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
    form
        How volumes are stored: ``zarr`` or ``nifti``.
    """

    def __init__(self, data: InferenceData, grid: ProcessGrid, *, classes: int, output: Path, form: str = ZARR) -> None:
        self._data, self._grid, self._output = data, grid, output
        self._classes = classes
        self._dtype = np.min_scalar_type(classes - 1)
        self._store = PredictionStore(output, data.extents, grid, dtype=self._dtype, sources=data.sources, form=form)
        self._noted: dict[str, Tensor] = {}

    def take(self, found: Predicted) -> None:
        """See Predictor."""
        volumes = found.outputs.argmax(1).cpu()
        for sample, classes in zip(found.samples, volumes, strict=True):
            self._store.write(sample, classes.numpy().astype(self._dtype))
        if found.labels is not None:
            for sample, classes, labels in zip(found.samples, volumes, found.labels.cpu(), strict=True):
                self._noted[sample] = _counts(classes, self._checked(sample, labels), self._classes)

    def finish(self) -> InferenceResult:
        """See Predictor."""
        labelled = self._data.labelled
        noted = sum_over_ranks(self._noted, labelled, grid=self._grid)
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
