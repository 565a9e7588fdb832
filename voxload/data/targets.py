"""Targets: the numbers that belong to a sample, from a catalogue or from the sample's own file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from voxload.data.lists.samples import Sample
from voxload.errors import DataError
from voxload.readers.registry import find_format

Values = npt.NDArray[np.float64]


def read_targets(sample: Sample, names: Sequence[str], in_file: Sequence[str]) -> torch.Tensor | None:
    """Return a sample's targets as a float32 vector, or None when none were asked for.

    Parameters
    ----------
    sample
        The sample.
    names
        What the targets are called.
    in_file
        Names of one-dimensional datasets of the sample's file that hold them, where no catalogue does.

    Raises
    ------
    DataError
        When stored targets are not finite, or are not one for each sample of an array; what reading them raises.
    """
    if not names:
        return None
    values = np.asarray(sample.targets, np.float64) if sample.targets is not None else _stored(sample, names, in_file)
    return torch.from_numpy(values.astype(np.float32))


def _stored(sample: Sample, names: Sequence[str], in_file: Sequence[str]) -> Values:
    """Read targets that stand in the sample's own file."""
    path = sample.locations[0].path
    parts = [find_format(path).read_vector(path, name) for name in in_file]
    values: Values = np.concatenate(parts if sample.row is None else [_row(sample, part) for part in parts])
    if not np.isfinite(values).all():
        raise DataError(
            f"targets {list(names)} of sample {sample.id!r} in {path}",
            found=str(values.tolist()),
            expected="finite numbers",
            remedy="mend the file or leave the sample out",
        )
    return values


def _row(sample: Sample, stored: npt.NDArray[Any]) -> Values:
    """Return the one value that is a sample's of those of all samples of its array."""
    index, count = sample.row or (0, 1)
    if len(stored) != count:
        raise DataError(
            f"targets of sample {sample.id!r}",
            found=f"{len(stored)} values",
            expected=f"{count}, one for each sample of the array",
            remedy="name a dataset that has them",
        )
    return stored[index : index + 1]
