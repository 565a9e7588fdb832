"""Columns: Python values as Arrow arrays, as ``pyarrow.array`` makes them, and without pandas.

pyarrow.array imports pandas wherever that is installed, which takes a third of a second and 40 MiB of a process that
has no other use for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from voxload.errors import UsageError

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
