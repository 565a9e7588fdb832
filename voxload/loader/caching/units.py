"""Units: what a cache keeps of a data set, each by itself: boxes of stored volumes, of all fields or of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from voxload.data.dataset import VolumeDataset
from voxload.data.layout import FieldLayout
from voxload.data.units.unit import Generations, StoredUnits, Unit
from voxload.loader.batch import unequal_blocks
from voxload.prefetch.line import Ints
from voxload.readers.protocol import ReadCost, Volume


class Units(StoredUnits, Protocol):
    """All units of a data set; safe to use from many threads at once."""

    @property
    def data(self) -> VolumeDataset:
        """The data set."""
        ...

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def kinds(self) -> tuple[Ints, list[tuple[FieldLayout, ...]]]:
        """Return the number of each unit's layout, and the layouts."""
        ...

    def files(self) -> Ints:
        """Return a number for each unit's file: equal ones mean the same."""
        ...


class SampleUnits:
    """Each sample's block as a unit; see Units.

    Parameters
    ----------
    data
        A data set whose items are the same in every epoch.
    expected
        Layout of every sample's blocks: batches are made of equal ones.
    """

    def __init__(self, data: VolumeDataset, expected: tuple[FieldLayout, ...]) -> None:
        self.data, self.count = data, len(data)
        self._expected = expected
        self._spatial = data.volume_shape(0)

    def unit(self, number: int) -> Unit:
        """See Units."""
        data = self.data
        box = data.box(self._spatial)
        names, locations = data.field_names, data.locations(number)
        return Unit(
            data.sample_ids[number], names, locations, box, self._expected, boundary=data.boundary, missing=data.missing
        )

    def kinds(self) -> tuple[Ints, list[tuple[FieldLayout, ...]]]:
        """See Units."""
        return np.zeros(self.count, np.int64), [self._expected]

    def files(self) -> Ints:
        """See Units."""
        known: dict[str, int] = {}
        paths = (self.data.locations(number)[0].path for number in range(self.count))
        return np.array([known.setdefault(path, len(known)) for path in paths], np.int64)

    def read_into(self, number: int, out: Sequence[Volume]) -> ReadCost:
        """See Units; raises DataError when the blocks are not as expected."""
        layout = self.data.layout(number)
        if layout != self._expected:
            raise unequal_blocks(self.data.sample_ids[number], layout, self._expected)
        return self.data.read_into(number, out)

    def generations(self, number: int) -> Generations:
        """See Units."""
        return self.data.generations(number)
