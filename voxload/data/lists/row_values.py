"""RowValues: what a catalogue's row says of a sample, as parts of an item: ids, numbers, spacings, notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from voxload.catalog.table import Catalog
from voxload.errors import UsageError

SAMPLE = "sample"
"""The column of ids; of a window or a patch, its own id and not that of what it is a part of."""


class RowValues:
    """Values of some columns, row by row; immutable, safe to share between threads.

    Parameters
    ----------
    catalog
        Whose columns they are.
    names
        The columns; `SAMPLE`, and what the catalogue does not have, are left out.

    Raises
    ------
    UsageError
        When a column is of another kind than numbers, lists of numbers, texts, dates and truths.
    """

    def __init__(self, catalog: Catalog, names: Sequence[str]) -> None:
        wanted = [name for name in names if name != SAMPLE]
        whole = catalog.whole if wanted else catalog.table
        self._columns = {name: whole.column(name) for name in wanted if name in whole.column_names}
        for name, column in self._columns.items():
            if not _is_plain(column.type):
                raise UsageError(
                    f"column {name!r}",
                    found=f"type {column.type}",
                    expected="numbers, lists of numbers, texts, dates or truths",
                )

    def of(self, row: int) -> dict[str, Any]:
        """Return a row's values: numbers and truths of Python's, texts, lists as arrays, None for a null.

        Whole numbers in lists become int64, others float64.
        """
        return {name: _value(column, row) for name, column in self._columns.items()}


def _value(column: pa.ChunkedArray, row: int) -> Any:
    value = column[row].as_py()
    if isinstance(value, list):
        if any(one is None for one in value):
            return None
        is_whole = pa.types.is_integer(column.type.value_type)
        return np.array(value, np.int64 if is_whole else np.float64)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))
    if pa.types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    checks = ("integer", "floating", "boolean", "string", "large_string", "date", "timestamp", "decimal")
    return any(getattr(pa.types, f"is_{check}")(kind) for check in checks)
