"""Columns of values are those that pyarrow itself makes, and need no pandas."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import voxload.catalog.columns
from tests.support import processes
from voxload.catalog.columns import column
from voxload.errors import UsageError

_TEXTS = st.text(max_size=5)
_INTEGERS = st.integers(-(2**63), 2**63 - 1)
_FLOATS = st.floats(allow_nan=False)
_STRUCT = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])
_STRUCTS = st.fixed_dictionaries({"a": st.none() | _INTEGERS, "b": st.none() | st.lists(_FLOATS, max_size=3)})
_KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), _TEXTS),
    (pa.int64(), _INTEGERS),
    (pa.float64(), _FLOATS),
    (pa.list_(pa.int64()), st.lists(_INTEGERS, max_size=4)),
    (pa.list_(pa.string()), st.lists(st.none() | _TEXTS, max_size=4)),
    (_STRUCT, _STRUCTS),
    (pa.list_(_STRUCT), st.lists(st.none() | _STRUCTS, max_size=3)),
]


@pytest.mark.parametrize(("kind", "values"), _KINDS, ids=[str(kind) for kind, _ in _KINDS])
@given(data=st.data())
def test_an_array_equals_pyarrows(kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """Any values, nulls at any depth."""
    given_ = data.draw(st.lists(st.none() | values, max_size=20))
    found = column(given_, kind)
    found.validate(full=True)
    assert found.equals(pa.array(given_, kind))
    assert found.null_count == given_.count(None)


@pytest.mark.long
def test_pandas_is_not_imported() -> None:
    """A process that writes a catalogue does not pay for pandas."""
    words = "import sys, pyarrow; from voxload.catalog.columns import column; column(['a', None], pyarrow.string())"
    processes.run([sys.executable, "-c", f"{words}; assert 'pandas' not in sys.modules"], check=True)


def test_too_long_a_column_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets must not wrap around."""
    monkeypatch.setattr(voxload.catalog.columns, "_MOST_BYTES", 5)
    with pytest.raises(UsageError, match="two catalogues"):
        column(["abc", "def"], pa.string())
