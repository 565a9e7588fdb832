"""RowIndex: the rows of a catalogue by numbers, as a dictionary would have them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.catalog.columns import column
from voxload.catalog.row_index import RowIndex
from voxload.errors import DataError

names = st.sampled_from(["", "a", "b", "ab", "é", "z\U0001f300", "\uffff", "s10", "s9"])


@given(st.lists(st.tuples(names, names), max_size=12))
def test_rows_are_those_of_a_dictionary(keys: list[tuple[str, str]]) -> None:
    """Whatever the order of the rows and the letters of the names; a dataset twice is an error that names it."""
    chunks = [[column([key[place] for key in part], pa.string()) for place in (0, 1)] for part in (keys[:5], keys[5:])]
    table = pa.Table.from_arrays(
        [pa.chunked_array([chunk[place] for chunk in chunks], pa.string()) for place in (0, 1)], ["sample", "dataset"]
    )
    if len(set(keys)) < len(keys):
        with pytest.raises(DataError, match="twice"):
            RowIndex(table, Path("here"))
        return
    index, rows = RowIndex(table, Path("here")), {key: row for row, key in enumerate(keys)}
    assert index.samples.to_pylist() == sorted({sample for sample, _ in keys})
    assert index.datasets.to_pylist() == sorted({dataset for _, dataset in keys})
    for sample in ["", "a", "é", "none", "zz"]:
        for dataset in ["", "b", "s9", "none"]:
            number, kind = index.sample(sample), index.dataset(dataset)
            found = None if number is None or kind is None else index.row(number, kind)
            assert found == rows.get((sample, dataset))
