"""Lookup: values of at most 16 bits, turned into what a table holds for them, in C.

``core/paste/lookup.c`` is the code; it holds no interpreter lock and knows bits only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.errors import InternalError
from voxload.readers.scratch import address

Bits = npt.NDArray[Any]
"""Numbers as unsigned integers of their size."""
_VALUES = (np.dtype(np.uint8), np.dtype(np.uint16))
_RESULTS = (*_VALUES, np.dtype(np.uint32), np.dtype(np.uint64))
_look_up_rows = function("look_up_rows", "piipipiiiinn")


class Lookup:
    """Looks up spans of some arrays; safe to use from many threads at once, of spans that do not overlap.

    Parameters
    ----------
    values
        Bits of the values ``(items, channels, voxels)``, 8 or 16, in any layout.
    table
        Results by channel, or one row for all channels, and by the value's bits.
    out
        Where results go: of the values' shape and the table's type, in any layout, and apart from both.

    Raises
    ------
    InternalError
        When the three do not belong together.
    """

    def __init__(self, values: Bits, table: Bits, out: Bits) -> None:
        channels = values.shape[1] if values.ndim == 3 else 0
        facts = (
            values.ndim == 3 and values.dtype in _VALUES,
            table.ndim == 2 and table.dtype in _RESULTS and table.flags.c_contiguous,
            len(table) in {1, channels} and table.shape[-1] == 1 << 8 * values.itemsize,
            out.shape == values.shape and out.dtype == table.dtype and out.flags.writeable,
            not (np.may_share_memory(out, values) or np.may_share_memory(out, table)),
        )
        if not all(facts):
            named = (("values", values), ("table", table), ("results", out))
            found = ", ".join(f"{name} {array.dtype.str}{array.shape}" for name, array in named)
            raise InternalError("table of results", found=found, expected="a result for every value, and room for it")
        self._alive = (values, table, out)
        self._shape, self._places = values.shape, (address(values), address(out))
        self._strides = (values.strides, out.strides)
        self._table = (address(table), table.strides[0] if len(table) > 1 else 0)
        self._sizes = (values.itemsize, out.itemsize)

    def span(self, item: int, first: int, stop: int) -> None:
        """Look up voxels ``[first, stop)`` of all channels of an item; raises InternalError where there are none."""
        items, channels, voxels = self._shape
        if not (0 <= item < items and 0 <= first <= stop <= voxels):
            raise InternalError("span", found=f"{first} to {stop} of item {item}", expected=f"of {self._shape}")
        (at, to), (source, target) = self._places, self._strides
        _look_up_rows(
            to + item * target[0] + first * target[2],
            *target[1:],
            *self._table,
            at + item * source[0] + first * source[2],
            *source[1:],
            channels,
            stop - first,
            *self._sizes,
        )
