"""Columns of a catalogue: their types, what is refused in them, and how they are made without pandas.

pyarrow.array imports pandas wherever that is installed, which takes a third of a second and 40 MiB of a process that
has no other use for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from voxload.catalog.places import Folder, is_outside
from voxload.errors import DataError, UsageError
from voxload.readers.storage.traversal import REMEDY

_SUMMARY = [
    ("count", pa.int64()),
    ("nan_count", pa.int64()),
    ("inf_count", pa.int64()),
    ("min", pa.float64()),
    ("max", pa.float64()),
    ("mean", pa.float64()),
    ("std", pa.float64()),
]
SUMMARY_TYPE: pa.DataType = pa.struct(
    [
        *_SUMMARY,
        ("edges", pa.list_(pa.float64())),
        ("histogram", pa.list_(pa.int64())),
        ("channels", pa.list_(pa.struct(_SUMMARY))),
    ]
)
"""Type of the catalogue's column ``statistics``."""
COLUMNS: dict[str, pa.DataType] = {
    "sample": pa.string(),
    "path": pa.string(),
    "dataset": pa.string(),
    "shape": pa.list_(pa.int64()),
    "dtype": pa.string(),
    "axes": pa.string(),
    "stored_bytes": pa.int64(),
    "checksums": pa.string(),
    "window": pa.list_(pa.int64()),
    "universe": pa.string(),
    "origin": pa.list_(pa.int64()),
    "spacing": pa.list_(pa.float64()),
    "affine": pa.list_(pa.float64()),
    "statistics": SUMMARY_TYPE,
}
COORDINATES = {"D": "coordinates_d", "H": "coordinates_h", "W": "coordinates_w"}
"""Columns by the axis that they are of; written where a row has one, and else, as any other tool's, not looked at."""
GENERATION = "generation"
"""Column of whole numbers, of a catalogue that was appended to: which append a row came by."""
_MAY_BE_EMPTY = frozenset({"dataset", "checksums", "universe"})
"""Columns in which a null means an empty string."""
_MAY_BE_NULL = frozenset({"window", "origin", "spacing", "affine", "statistics"})
"""Columns in which a null means that there is none."""
_LENGTHS = {"spacing": 3, "affine": 16}
"""Numbers in each list of a column where they must be so many, and finite."""
_MAY_LEAVE = r"^/|\.\.|://"
"""Paths that are worth a closer look: few are in a catalogue of 262,144 rows."""
_OPTIONAL = frozenset({"checksums", "universe"}) | _MAY_BE_NULL
"""Columns that another tool need not write."""


def check_columns(table: pa.Table, root: Folder) -> None:
    """Refuse a table that lacks a column or has two of one name."""
    names = table.column_names
    missing = [name for name in COLUMNS if name not in names and name not in _OPTIONAL]
    if missing:
        raise DataError(
            f"catalogue in {root}",
            found=f"no column {', '.join(missing)}",
            expected=f"columns {', '.join(name for name in COLUMNS if name not in _OPTIONAL)}",
            remedy="make it with voxload convert or Catalog.from_entries",
        )
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise DataError(f"catalogue in {root}", found=f"two columns {twice[0]!r}", expected="each name once")


def check_paths(table: pa.Table, root: Folder, *, allow_outside: bool) -> None:
    """Refuse paths that lead out of `root` by what they say; links are followed when a volume is opened."""
    for name in ("path", "checksums"):
        if pc.any(pc.match_substring(table.column(name), "\0")).as_py():
            raise DataError(f"catalogue in {root}", found=f"{name} with a NUL", expected="names of files")
        if allow_outside:
            continue
        odd = pc.filter(table.column(name), pc.match_substring_regex(table.column(name), _MAY_LEAVE))
        for path in odd.unique().to_pylist():
            if is_outside(root, path):
                raise UsageError(
                    f"catalogue in {root}", found=f"{name} {path!r}", expected="paths in that folder", remedy=REMEDY
                )


def column_of(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column, or one of nulls where an optional one is left out."""
    if name in table.column_names:
        return table.column(name)
    return pa.chunked_array([pa.nulls(table.num_rows, COLUMNS[name])])


def is_target(column: pa.Field) -> bool:
    """Tell whether a column holds a target: a number, and neither pandas' row index nor a generation."""
    is_whole = pa.types.is_integer(column.type)
    is_known = column.name in COLUMNS or (is_whole and column.name == GENERATION)
    is_number = is_whole or pa.types.is_floating(column.type)
    return is_number and not is_known and not column.name.startswith("__index_level_")


def conform(column: pa.ChunkedArray, name: str, kind: pa.DataType, root: Folder) -> pa.ChunkedArray:
    """Return a column in its own type, whatever string or list type its writer chose; no name is an empty one.

    Raises DataError when it has another type, or nulls.
    """
    try:
        found = column if column.type == kind else column.cast(kind)
    except pa.ArrowException as error:
        raise DataError(
            f"catalogue in {root}", found=f"column {name!r} of type {column.type}", expected=str(kind)
        ) from error
    if name in _MAY_BE_EMPTY and found.null_count:  # filling imports pandas, wherever that is installed
        found = found.fill_null("")
    has_nulls = found.null_count and name not in _MAY_BE_NULL
    if has_nulls or (pa.types.is_list(kind) and _has_null_items(found)):
        raise DataError(f"catalogue in {root}", found=f"a null in column {name!r}", expected="a value in every row")
    if name in _LENGTHS and found.null_count < len(found):
        _check_numbers(found, name, root)
    return found


def _check_numbers(column: pa.ChunkedArray, name: str, root: Folder) -> None:
    """Refuse lists of another length than the column's, numbers that are not finite, and distances of 0 or less."""
    length, flat = _LENGTHS[name], pc.list_flatten(column)
    is_wrong = pc.any(pc.not_equal(pc.list_value_length(column), length)).as_py()
    is_wrong = is_wrong or not pc.all(pc.is_finite(flat)).as_py()
    if is_wrong or (name == "spacing" and pc.any(pc.less_equal(flat, 0.0)).as_py()):
        raise DataError(
            f"catalogue in {root}",
            found=f"a list in column {name!r} that is none of {length} numbers",
            expected=f"{length} finite numbers" + (" above 0" if name == "spacing" else "") + ", or a null",
        )


def _has_null_items(column: pa.ChunkedArray) -> bool:
    """Tell whether a list has a null; values of a slice are also those beside it, so these are looked at first."""
    return any(lists.values.null_count and lists.flatten().null_count for lists in column.chunks)


def numbers(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return an array of whole or floating numbers as numpy has it; nulls are 0 there. pyarrow's way imports pandas."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    name = str(values.type)
    dtype = np.dtype({"double": "float64", "float": "float32", "halffloat": "float16"}.get(name, name))
    parts = [
        np.frombuffer(one.buffers()[1], dtype, len(one), one.offset * dtype.itemsize) for one in chunks if len(one)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])


def from_numbers(values: npt.NDArray[np.int64]) -> pa.Array:
    """Return numbers as an array of int64."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


_MOST_BYTES = 2**31 - 1
"""Bytes or values that the offsets of a string or list column reach."""


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values, None for a null, as an array of strings, numbers, lists or structs of them.

    Raises
    ------
    UsageError
        When strings or lists of one column together hold more than 2 GiB or that many values.
    """
    is_valid = [value is not None for value in values]
    nulls = None if all(is_valid) else pa.py_buffer(np.packbits(is_valid, bitorder="little").tobytes())
    if pa.types.is_string(kind):
        texts = [("" if value is None else value).encode() for value in values]
        return pa.Array.from_buffers(kind, len(values), [nulls, _offsets(texts), pa.py_buffer(b"".join(texts))])
    if pa.types.is_list(kind):
        lists = [() if value is None else value for value in values]
        within = column(list(chain.from_iterable(lists)), kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [nulls, _offsets(lists)], children=[within])
    if pa.types.is_struct(kind):
        parts = [
            column([None if value is None else value.get(part.name) for value in values], part.type) for part in kind
        ]
        return pa.Array.from_buffers(kind, len(values), [nulls], children=parts)
    numbers = np.array([0 if value is None else value for value in values], dtype=str(kind))
    return pa.Array.from_buffers(kind, len(values), [nulls, pa.py_buffer(numbers.tobytes())])


def _offsets(parts: Sequence[Any]) -> pa.Buffer:
    """Return where each part begins, and where the last one ends, when they are one behind the other."""
    ends = list(accumulate(map(len, parts), initial=0))
    if ends[-1] > _MOST_BYTES:
        raise UsageError(
            "a column of a catalogue",
            found=f"{ends[-1]} bytes or values",
            expected=f"at most {_MOST_BYTES}",
            remedy="write two catalogues",
        )
    return pa.py_buffer(np.array(ends, np.int32).tobytes())
