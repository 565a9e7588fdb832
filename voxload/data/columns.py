"""Columns: what an item has behind volumes and targets, from the catalogue, its id, its time steps and its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from voxload.data.lists.samples import Sample
from voxload.readers.attributes import Attributes, is_attribute


class Columns:
    """The columns of a data set; safe to use from many threads.

    Attributes of files are read by whoever reads the blocks of a sample, so that the training loop does not wait for
    them, and are kept.

    Parameters
    ----------
    names
        Names of the columns, in the order of an item's parts.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._attributes = Attributes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def of(self, sample: Sample) -> tuple[Any, ...]:
        """Return what an item has in the columns: arrays as tensors, all else as it is.

        Raises DataError where the catalogue says nothing; what `voxload.readers.attributes.read_attribute` raises.
        """
        if not self.names:
            return ()
        path = sample.locations[0].path
        found = sample.parts(self.names, {name: self._attributes.of(path, name) for name in self._wanted(sample)})
        return tuple(torch.from_numpy(one.copy()) if isinstance(one, np.ndarray) else one for one in found)

    def learn(self, sample: Sample) -> None:
        """Read the attributes of a sample's file that are not known, or not any more."""
        for name in self._wanted(sample):
            self._attributes.learn(sample.locations[0].path, name)

    def _wanted(self, sample: Sample) -> list[str]:
        return [name for name in self.names if is_attribute(name) and name not in sample.values]
