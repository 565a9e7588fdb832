"""RowIndex: which row of a catalogue is of which sample and dataset, as numbers: there may be a million rows."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from voxload.catalog.columns import column, numbers
from voxload.catalog.places import Folder
from voxload.errors import DataError

Ints = npt.NDArray[np.int64]


class RowIndex:
    """The rows of a table by sample and dataset; immutable, safe to share between threads.

    Samples and datasets are numbered in the sorted order of their names.

    Parameters
    ----------
    table
        With the columns ``sample`` and ``dataset``, without nulls.
    root
        The catalogue's folder, for messages.

    Raises
    ------
    DataError
        When a sample names one dataset twice.
    """

    def __init__(self, table: pa.Table, root: Folder) -> None:
        self.samples, self.sample_of_row = _numbered(table.column("sample"))
        self.datasets, self.dataset_of_row = _numbered(table.column("dataset"))
        keys = self.sample_of_row * max(len(self.datasets), 1) + self.dataset_of_row
        self._order: Ints | None = None
        if len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
            self._order = np.argsort(keys, kind="stable")
            keys = keys[self._order]
            twice = np.flatnonzero(keys[1:] == keys[:-1])
            if len(twice):
                row = int(self._order[twice + 1].min())
                raise DataError(
                    f"catalogue in {root}, sample {table.column('sample')[row].as_py()!r}",
                    found=f"dataset {table.column('dataset')[row].as_py()!r} twice",
                    expected="each dataset once",
                )
        self._keys = keys

    def sample(self, name: str) -> int | None:
        """Return the number of a sample; None where there is none of this name."""
        return _find(self.samples, name)

    def dataset(self, name: str) -> int | None:
        """Return the number of a dataset; None where there is none of this name."""
        return _find(self.datasets, name)

    def row(self, sample: int, dataset: int) -> int | None:
        """Return the row of a sample's dataset, by their numbers; None where it has none."""
        key = sample * len(self.datasets) + dataset
        place = int(np.searchsorted(self._keys, key))
        if place == len(self._keys) or self._keys[place] != key:
            return None
        return place if self._order is None else int(self._order[place])


def _numbered(names: pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    """Return the distinct names, sorted, and the number of each row's."""
    encoded = names.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):  # of a column without a chunk
        encoded = column([], pa.string()).dictionary_encode()
    distinct, found = encoded.dictionary, numbers(encoded.indices)
    # Bytes of UTF-8 are in the order of the characters, as Python's strings are.
    if len(distinct) > 1 and not pc.all(pc.less(distinct[:-1], distinct[1:])).as_py():
        order = pc.sort_indices(distinct)
        places = np.empty(len(distinct), np.int64)
        places[numbers(order)] = np.arange(len(distinct))
        distinct, found = distinct.take(order), places[found]
    return distinct, found.astype(np.int64, copy=False)


def _find(names: pa.Array, name: str) -> int | None:
    place = bisect_left(range(len(names)), name, key=lambda number: names[number].as_py())
    return place if place < len(names) and names[place].as_py() == name else None
