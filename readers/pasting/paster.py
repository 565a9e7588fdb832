"""Paster: what writes the rows of a plan, as they are or cast to another type in the same pass.

Cast kernels: paste voxels as another type, in the same pass. A piece of a row is brought into order in a small
buffer, which stays in the nearest cache, and cast from there. The kernel of a stored type is compiled when it is
first asked for, and kept on disk like the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numba
import numpy as np
import numpy.typing as npt
from numba import boolean, float32, types, uint16, uint64

from voxload.errors import UsageError
from voxload.readers.compiling import compiled, part
from voxload.readers.pasting.intrinsics import bfloat_of, half_of, odd_of, of_half, pointer
from voxload.readers.pasting.kernels import (
    BY_ELEMENT,
    BY_RUN,
    BYTES,
    COLUMNS,
    FIRST,
    MANNER,
    SOURCE_STRIDE,
    STOP,
    TABLE,
    TARGET,
    TARGET_STRIDE,
    Table,
    carray,
    paste,
    paste_mapped,
    paste_part,
)
from voxload.readers.pasting.pasteplan import ChunkShape
from voxload.readers.protocol import CASTS, VolumeInfo
from voxload.readers.scratch import Bytes

FLOAT, HALF, BFLOAT = 0, 1, 2
KINDS: dict[np.dtype[Any], int] = dict(zip(CASTS, (FLOAT, HALF, BFLOAT), strict=True))
"""What the kernels call the types that voxels can be read as."""
_PIECE = 512
"""Elements of the buffer."""
_HALF = np.dtype(np.float16)
_NOTHING: Bytes = np.empty(0, np.uint8)


@part
def _number(value: Any, is_half: Any) -> Any:
    """Return a stored number as a float32; halves come as their bits."""
    return of_half(uint16(value)) if is_half else float32(value)


@part
def _store_floats(row: Any, count: Any, to: Any, step: Any, is_half: Any) -> None:
    """Write numbers `step` elements apart; next to each other they are vectorised."""
    target = carray(pointer(to), (count * step,), float32)
    if step == uint64(1) and not is_half:
        for d in range(count):
            target[d] = float32(row[d])
    else:
        for d in range(count):
            target[d * step] = _number(row[d], is_half)


@part
def _store_bfloats(row: Any, count: Any, to: Any, step: Any, is_half: Any) -> None:
    """Write numbers as bfloat16."""
    target = carray(pointer(to), (count * step,), uint16)
    if step == uint64(1) and not is_half:
        for d in range(count):
            target[d] = bfloat_of(float32(row[d]))
    else:
        for d in range(count):
            target[d * step] = bfloat_of(_number(row[d], is_half))


@part
def _store_halves(row: Any, count: Any, to: Any, step: Any, is_half: Any) -> None:
    """Write numbers as float16."""
    target = carray(pointer(to), (count * step,), uint16)
    if is_half:
        for d in range(count):
            target[d * step] = uint16(row[d])
    elif step == uint64(1):
        for d in range(count):
            target[d] = half_of(odd_of(row[d]))
    else:
        for d in range(count):
            target[d * step] = half_of(odd_of(row[d]))


@part
def _store(row: Any, count: Any, to: Any, step: Any, kind: Any, is_half: Any) -> None:
    """Cast the first numbers of `row` to an address and on, `step` bytes apart."""
    if kind == FLOAT:
        _store_floats(row, count, to, step // uint64(4), is_half)
    elif kind == BFLOAT:
        _store_bfloats(row, count, to, step // uint64(2), is_half)
    else:
        _store_halves(row, count, to, step // uint64(2), is_half)


@part
def _copy_row(to: Any, row: Any) -> None:
    """Copy a row; numba's assignment of slices takes two seconds to compile, for its error's text."""
    for column in range(COLUMNS):
        to[column] = row[column]


@part
def _cast_part(start: Any, size: Any, row: Any, buffer: Any, piece: Any, flags: Any) -> None:
    """Cast one part of a chunk at an address; `piece` is scratch for the plan of a piece of a row."""
    width, (is_shuffled, is_swapped, kind, is_half) = uint64(buffer.itemsize), flags
    _copy_row(piece, row)
    piece[0], piece[1], piece[2] = uint64(1), uint64(1), uint64(1)
    piece[TARGET], piece[TARGET_STRIDE + 3] = uint64(buffer.ctypes.data), width
    piece[MANNER] = BY_RUN if row[SOURCE_STRIDE + 3] == width else BY_ELEMENT
    for a in range(row[0]):
        for b in range(row[1]):
            for c in range(row[2]):
                at = row[FIRST] + a * row[4] + b * row[5] + c * row[6]
                to = row[TARGET] + a * row[8] + b * row[9] + c * row[10]
                for done in range(uint64(0), row[3], uint64(_PIECE)):
                    piece[3], piece[FIRST] = min(row[3] - done, uint64(_PIECE)), at + done * row[7]
                    paste_part(start, size, piece, width, is_shuffled, is_swapped)
                    _store(buffer, piece[3], to + done * row[11], row[11], kind, is_half)


def _cast(source: Any, table: Any, span: Any, buffer: Any, is_mapped: Any, flags: Any) -> None:
    """Cast the rows of a plan from one to another, out of one chunk or, mapped, out of where they say."""
    piece = np.empty(COLUMNS, np.uint64)
    own = np.empty(COLUMNS, np.uint64)
    for number in range(span[0], span[1]):
        _copy_row(own, table[number])
        start, size = uint64(source.ctypes.data), uint64(len(source))
        if is_mapped:
            start, size = own[FIRST], own[STOP] - own[FIRST]
            own[FIRST], own[STOP] = uint64(0), size
        _cast_part(start, size, own, buffer, piece, flags)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the bytes of a read lie, and in which order."""

    is_mapped: bool
    is_shuffled: bool


@cache
def _kernel(stored: np.dtype[Any]) -> Callable[..., None]:
    """Return the kernel of a stored type; takes seconds the first time on a machine."""
    number = numba.from_dtype(np.dtype(np.uint16) if stored == _HALF else stored)
    kind: Any = types  # whose constructors have no annotations
    flags = kind.Tuple((boolean, boolean, types.int64, boolean))
    signature = (BYTES, TABLE, kind.UniTuple(uint64, 2), types.Array(number, 1, "C"), boolean, flags)
    kernel: Callable[..., None] = compiled(*signature)(_cast)
    return kernel


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
        bits = np.dtype(np.uint8) if stored.kind == "b" else stored
        self._kernel = _kernel(bits)
        self._buffer = np.dtype(np.uint16) if stored == _HALF else bits
        self._is_swapped, self._kind, self._is_half = is_swapped, KINDS[target], stored == _HALF

    def paste(self, source: Bytes, table: Table, span: tuple[int, int], *, is_shuffled: bool) -> None:
        """Paste rows of a plan out of one decoded chunk."""
        self._run(source, table, span, _Layout(is_mapped=False, is_shuffled=is_shuffled))

    def paste_mapped(self, table: Table, span: tuple[int, int]) -> None:
        """Paste rows whose FIRST and STOP are addresses."""
        self._run(_NOTHING, table, span, _Layout(is_mapped=True, is_shuffled=False))

    def _run(self, source: Bytes, table: Table, span: tuple[int, int], layout: _Layout) -> None:
        flags = (layout.is_shuffled, self._is_swapped, self._kind, self._is_half)
        self._kernel(source, table, span, np.empty(_PIECE, self._buffer), layout.is_mapped, flags)


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
        paste(source, table, *span, self._width, is_shuffled, self._is_swapped)

    def paste_mapped(self, table: Table, span: tuple[int, int]) -> None:
        """Paste rows whose FIRST and STOP are addresses."""
        paste_mapped(table, *span, self._width, self._is_swapped)


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


def warm(info: VolumeInfo, target: npt.DTypeLike) -> None:
    """Compile what reading a volume as `target` needs, so that its first read does not wait for it.

    Takes seconds the first time on a machine, milliseconds afterwards, and nothing where `target` is the stored type.

    Raises
    ------
    UsageError
        When `target` is neither the stored type nor one of the protocol's `CASTS`.
    """
    paster(ChunkShape.of(info.shape, info.dtype), np.dtype(target))
