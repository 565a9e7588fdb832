"""GrowingSamples: the samples of a catalogue that grows, in an order in which each keeps its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from voxload.catalog.columns import from_numbers
from voxload.catalog.generations import first_generations
from voxload.catalog.query.conditions import Condition
from voxload.catalog.table import Catalog
from voxload.data.lists.names import ColumnNames
from voxload.data.lists.samples import Sample, Samples
from voxload.data.lists.selection import chosen_of


class GrowingSamples:
    """The samples of a catalogue in the order of their generations, and within one in that of their ids; see Samples.

    With each append the list becomes longer, and no index gets another meaning: what is drawn for a sample, and what is
    kept of it, stays what it was.

    Parameters
    ----------
    stored
        The catalogue's samples, in the order of their ids.
    catalog
        The catalogue.
    """

    def __init__(self, stored: Samples, catalog: Catalog) -> None:
        self.fields, self.targets_in_file = stored.fields, stored.targets_in_file
        # A sample that got a further dataset later was there before.
        self._stored, self._order = stored, np.argsort(first_generations(catalog), kind="stable")
        self.ids: Sequence[str] = ColumnNames(catalog.index.samples.take(from_numbers(self._order)))

    def sample(self, index: int) -> Sample:
        """Return one sample."""
        return self._stored.sample(int(self._order[index]))

    def where(self, condition: Condition) -> list[int]:
        """Return the indices of the samples for which a condition holds; see `CatalogSamples.where`."""
        return np.flatnonzero(np.isin(self._order, chosen_of(self._stored, condition))).tolist()
