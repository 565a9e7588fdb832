"""Paster: what writes the rows of a plan, as they are or cast to another type in the same pass."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from voxload.core.library import function
from voxload.errors import UsageError
from voxload.readers.pasting.kernels import Table, check_span, paste, paste_mapped
from voxload.readers.pasting.pasteplan import ChunkShape
from voxload.readers.protocol import CASTS
from voxload.readers.scratch import Bytes

KINDS: dict[np.dtype[Any], int] = dict(zip(CASTS, range(3), strict=True))
"""What the kernels call the types that voxels can be read as: ``enum cast``."""
_STORED = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
"""What they call stored types: ``enum stored``."""
_cast_chunk = function("cast_chunk", "rnrnnnbbnn")
_cast_memory = function("cast_memory", "rnnnbnn")


def kinds_of(stored: np.dtype[Any], target: np.dtype[Any]) -> tuple[int, int]:
    """Return what the kernels call both types; -1 for both where nothing is cast."""
    if stored == target:
        return -1, -1
    return _STORED.index("u1" if stored.kind == "b" else stored.str[1:]), KINDS[target]


class Caster:
    """Pastes voxels of one type as another; safe to use from many threads at once.

    Parameters
    ----------
    stored
        Type of the voxels in the file, in this machine's byte order.
    target
        One of `KINDS`.
    is_swapped
        Whether the bytes of stored elements stand in the other order.
    """

    def __init__(self, stored: np.dtype[Any], target: np.dtype[Any], *, is_swapped: bool) -> None:
        self._types = kinds_of(stored, target)
        self._width, self._is_swapped = stored.itemsize, is_swapped

    def paste(self, source: Bytes, table: Table, span: tuple[int, int], *, is_shuffled: bool) -> None:
        """Paste rows of a plan out of one decoded chunk."""
        begin, end = check_span(table, span)
        _cast_chunk(source, source.size, table, begin, end, self._width, is_shuffled, self._is_swapped, *self._types)

    def paste_mapped(self, table: Table, span: tuple[int, int]) -> None:
        """Paste rows whose FIRST and STOP are addresses."""
        _cast_memory(table, *check_span(table, span), self._width, self._is_swapped, *self._types)


class Paster(Protocol):
    """Writes rows of a plan; safe to use from many threads at once."""

    def paste(self, source: Bytes, table: Table, span: tuple[int, int], *, is_shuffled: bool) -> None:
        """Paste rows ``[begin, end)`` out of one decoded chunk."""
        ...

    def paste_mapped(self, table: Table, span: tuple[int, int]) -> None:
        """Paste rows whose FIRST and STOP are addresses, of memory that is not shuffled."""
        ...


class Copier:
    """Pastes voxels as they are; safe to use from many threads at once."""

    def __init__(self, shape: ChunkShape) -> None:
        self._width, self._is_swapped = shape.itemsize, shape.is_swapped and shape.itemsize > 1

    def paste(self, source: Bytes, table: Table, span: tuple[int, int], *, is_shuffled: bool) -> None:
        """Paste rows ``[begin, end)`` out of one decoded chunk."""
        paste(source, table, span, self._width, is_shuffled=is_shuffled, is_swapped=self._is_swapped)

    def paste_mapped(self, table: Table, span: tuple[int, int]) -> None:
        """Paste rows whose FIRST and STOP are addresses."""
        paste_mapped(table, span, self._width, is_swapped=self._is_swapped)


def paster(shape: ChunkShape, target: np.dtype[Any]) -> Paster:
    """Return what pastes chunks of `shape` as `target`: the same type, or one of the protocol's `CASTS`.

    Raises UsageError for any other type.
    """
    if target == shape.dtype:
        return Copier(shape)
    if target not in CASTS:
        expected = f"{shape.dtype}, or {', '.join(str(dtype) for dtype in CASTS)}"
        raise UsageError("view", found=str(target), expected=expected)
    return Caster(shape.dtype, target, is_swapped=shape.is_swapped and shape.itemsize > 1)
