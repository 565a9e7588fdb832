"""GrowingSamples: the samples of a catalogue that grows, in an order in which each keeps its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voxload.catalog.columns import GENERATION, numbers
from voxload.catalog.query.conditions import Condition
from voxload.catalog.table import Catalog
from voxload.data.lists.names import Names
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
        self._stored, self._order = stored, _order(catalog)
        self.ids: Sequence[str] = Names(len(self._order), self._id)

    def sample(self, index: int) -> Sample:
        """Return one sample."""
        return self._stored.sample(int(self._order[index]))

    def where(self, condition: Condition) -> list[int]:
        """Return the indices of the samples for which a condition holds; see `CatalogSamples.where`."""
        return np.flatnonzero(np.isin(self._order, chosen_of(self._stored, condition))).tolist()

    def _id(self, index: int) -> str:
        return self._stored.ids[int(self._order[index])]


def _order(catalog: Catalog) -> npt.NDArray[np.int64]:
    """Return the samples' numbers in a catalogue, whose order is that of ids, in the order of their generations."""
    count, table = len(catalog.index.samples), catalog.whole
    if GENERATION not in table.column_names:
        return np.arange(count, dtype=np.int64)
    # A sample that got a further dataset later was there before.
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, catalog.index.sample_of_row, numbers(table.column(GENERATION)))
    return np.argsort(first, kind="stable")
