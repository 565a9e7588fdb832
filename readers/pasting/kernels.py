"""Kernels: the one pass that takes voxels from decoded chunks to where they belong.

Undoing the byte shuffle, turning the byte order, turning the axes, cropping and pasting are one loop, so that a
voxel is written once. numba compiles the kernels when this module is first imported and keeps them on disk. They
hold no interpreter lock and know bits only: a voxel is so many bytes, whatever its type.

A plan is a table of uint64 with one row for each part of a chunk that is wanted somewhere; the constants below name
its columns. All strides and places count bytes. Unsigned on purpose: for signed indices numba adds the test for
Python's negative ones to every access, and nothing is vectorised. Callers have checked every bound.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import boolean, types, uint8, uint64

from voxload.readers.compiling import compiled, part
from voxload.readers.pasting.intrinsics import (
    LINE,
    PIECE,
    copy,
    copy_line,
    copy_piece,
    prefetch,
    settle,
    swap2,
    swap4,
    swap8,
    weave2,
    weave4,
    weave8,
)

AXES = 4
EXTENT, SOURCE_STRIDE, TARGET_STRIDE = 0, AXES, 2 * AXES
"""First of four columns each: how many elements, and how far apart; the axis that is contiguous in the target last."""
FIRST, STOP = 12, 13
"""Bytes from the chunk's start to the first wanted element, and behind the last one."""
TARGET = 14
"""Address of the first element in memory."""
MANNER = 15
"""How it is copied: one of the next three."""
BY_ELEMENT, BY_RUN, BY_LINE = 0, 1, 2
PLACE = 16
"""First of four columns: the chunk's place in the grid."""
CHUNK = 20
"""Number of the chunk, counted along the grid."""
BOX = 21
"""Number of the box that wants it."""
COLUMNS = 22

carray: Any = vars(numba)["carray"]  # its annotations describe what it is outside kernels
Table = npt.NDArray[np.uint64]
"""One row a part."""
BYTES = types.Array(uint8, 1, "C", readonly=True)
TABLE = types.Array(uint64, 2, "C")
NUMBERS = types.Array(uint64, 1, "C")
_ONE = uint64(1)
_NONE = uint64(0)
_AHEAD = uint64(8)
"""Rows that are asked for before they are copied, where they lie too far apart for the processor to guess."""


@part
def _cut(row: Any, box: Any, chunk: Any, width: Any) -> None:
    """Write what a box wants of one chunk."""
    first, last, to = _NONE, _NONE, box[12]
    for turn in range(AXES):
        axis = box[13 + turn]
        begin = row[PLACE + axis] * chunk[axis]
        lo, hi = max(box[axis], begin), min(box[4 + axis], begin + chunk[axis])
        stride = chunk[4 + axis]
        row[EXTENT + turn] = hi - lo
        row[SOURCE_STRIDE + turn] = stride
        row[TARGET_STRIDE + turn] = box[8 + axis]
        first += (lo - begin) * stride
        last += (hi - begin - _ONE) * stride
        to += (lo - box[axis]) * box[8 + axis]
    row[FIRST], row[STOP], row[TARGET] = first, last + width, to
    is_run = row[SOURCE_STRIDE + 3] == width and row[TARGET_STRIDE + 3] == width
    row[MANNER] = BY_RUN if is_run else BY_ELEMENT
    line = uint64(LINE)
    if is_run and box[17] and row[EXTENT + 3] * width % line == _NONE and to % line == _NONE:
        row[MANNER] = BY_LINE


@compiled(TABLE, TABLE, NUMBERS, uint64)
def tabulate(table: Any, boxes: Any, chunk: Any, width: int) -> None:
    """Write one row of the plan for each chunk of each box.

    Parameters
    ----------
    table
        Rows to be filled, as many as there are.
    boxes
        One row a box: start (4) and stop (4) in stored axis order, target strides (4), the target's address, the axes
        in the order of the kernels' loops (4), and whether whole lines may be streamed.
    chunk
        Extents (4), strides in bytes (4) and the number of chunks along each axis (4).
    width
        Bytes of an element.
    """
    row = 0
    for number in range(len(boxes)):
        box = boxes[number]
        for c0 in range(box[0] // chunk[0], (box[4] - _ONE) // chunk[0] + _ONE):
            for c1 in range(box[1] // chunk[1], (box[5] - _ONE) // chunk[1] + _ONE):
                for c2 in range(box[2] // chunk[2], (box[6] - _ONE) // chunk[2] + _ONE):
                    for c3 in range(box[3] // chunk[3], (box[7] - _ONE) // chunk[3] + _ONE):
                        found = table[row]
                        found[PLACE] = c0
                        found[PLACE + 1] = c1
                        found[PLACE + 2] = c2
                        found[PLACE + 3] = c3
                        found[CHUNK] = ((c0 * chunk[9] + c1) * chunk[10] + c2) * chunk[11] + c3
                        found[BOX] = number
                        _cut(found, box, chunk, width)
                        row += 1


@part
def _copy_run(to: Any, at: Any, size: Any) -> None:
    """Copy a run; a call of memcpy takes longer than to move a row of a small chunk."""
    piece = uint64(PIECE)
    if size < piece or size > uint64(1024):
        copy(to, at, size)
        return
    last = size - piece
    place = _NONE
    while place < last:
        copy_piece(to + place, at + place)
        place += piece
    copy_piece(to + last, at + last)  # over the end of the one before, where the size is no multiple


@part
def _paste_runs(row: Any, start: Any, width: Any) -> None:
    """Copy a part whose last axis is a run in both."""
    n0, n1, n2, size, to = row[0], row[1], row[2], row[3] * width, row[TARGET]
    ahead, lines = _AHEAD * row[6], size // uint64(LINE) + _ONE
    is_apart = row[6] > size + uint64(LINE) and lines <= uint64(16)
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = start + a * row[4] + b * row[5] + c * row[6]
                if is_apart:
                    for d in range(lines):
                        prefetch(i + ahead + d * uint64(LINE))
                _copy_run(to + a * row[8] + b * row[9] + c * row[10], i, size)


@part
def _paste_lines(row: Any, start: Any, width: Any) -> None:
    """Copy a part whose last axis consists of whole lines of the target, past the caches."""
    n0, n1, n2, lines, to = row[0], row[1], row[2], row[3] * width // uint64(LINE), row[TARGET]
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = start + a * row[4] + b * row[5] + c * row[6]
                o = to + a * row[8] + b * row[9] + c * row[10]
                for d in range(lines):
                    copy_line(o + d * uint64(LINE), i + d * uint64(LINE))
    settle()


@part
def _paste_elements(row: Any, start: Any, width: Any) -> None:
    """Copy a part element by element."""
    n0, n1, n2, n3, to = row[0], row[1], row[2], row[3], row[TARGET]
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = start + a * row[4] + b * row[5] + c * row[6]
                o = to + a * row[8] + b * row[9] + c * row[10]
                for d in range(n3):
                    copy(o + d * row[11], i + d * row[7], width)


@part
def _paste_row(row: Any, start: Any, width: Any) -> None:
    """Copy a part from its first element's address."""
    if row[MANNER] == BY_RUN:
        _paste_runs(row, start, width)
    elif row[MANNER] == BY_LINE:
        _paste_lines(row, start, width)
    else:
        _paste_elements(row, start, width)


@part
def _gather_run(to: Any, step: Any, at: Any, stride: Any, plane: Any, count: Any, width: Any) -> None:
    """Put elements together byte by byte."""
    for d in range(count):
        for k in range(width):
            copy(to + d * step + k, at + d * stride + k * plane, _ONE)


@part
def _weave_run(to: Any, at: Any, plane: Any, count: Any, width: Any, streams: Any) -> None:
    """Put elements that are next to each other in their planes and in the target together, a line at a time."""
    each = uint64(LINE) // width
    lines = count // each
    if width == uint64(2):
        for d in range(lines):
            weave2(to + d * uint64(LINE), at + d * each, plane, streams)
    elif width == uint64(4):
        for d in range(lines):
            weave4(to + d * uint64(LINE), at + d * each, plane, streams)
    else:
        for d in range(lines):
            weave8(to + d * uint64(LINE), at + d * each, plane, streams)
    done = lines * each
    _gather_run(to + done * width, width, at + done, _ONE, plane, count - done, width)


@part
def _swap_run(to: Any, at: Any, count: Any, width: Any, streams: Any) -> None:
    """Turn the bytes of elements that are next to each other in both, a line at a time."""
    each = uint64(LINE) // width
    lines = count // each
    if width == uint64(2):
        for d in range(lines):
            swap2(to + d * uint64(LINE), at + d * uint64(LINE), streams)
    elif width == uint64(4):
        for d in range(lines):
            swap4(to + d * uint64(LINE), at + d * uint64(LINE), streams)
    else:
        for d in range(lines):
            swap8(to + d * uint64(LINE), at + d * uint64(LINE), streams)
    done = lines * each
    _gather_run(to + done * width, width, at + (done + _ONE) * width - _ONE, width, _NONE - _ONE, count - done, width)


@part
def _assemble_row(row: Any, start: Any, plane: Any, width: Any, is_swapped: Any) -> None:
    """Put a part together from its chunk's address; `plane` is 0 where the bytes of an element are together."""
    n0, n1, n2, n3, to = row[0], row[1], row[2], row[3], row[TARGET]
    shrunk, step = (width, plane) if plane else (_ONE, _ONE)
    s0, s1, s2, s3 = row[4] // shrunk, row[5] // shrunk, row[6] // shrunk, row[7] // shrunk
    lowest = row[FIRST] // shrunk
    if is_swapped:
        lowest, step = lowest + (width - _ONE) * step, _NONE - step
    is_run = row[11] == width and s3 == (_ONE if plane else width)
    streams = uint8(row[MANNER] == BY_LINE)
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = start + lowest + a * s0 + b * s1 + c * s2
                o = to + a * row[8] + b * row[9] + c * row[10]
                if not is_run:
                    _gather_run(o, row[11], i, s3, step, n3, width)
                elif plane:
                    _weave_run(o, i, step, n3, width, streams)
                else:
                    _swap_run(o, i + _ONE - width, n3, width, streams)
    if streams:
        settle()


@part
def paste_part(start: Any, size: Any, row: Any, width: Any, is_shuffled: Any, is_swapped: Any) -> None:
    """Paste one part of a chunk of `size` bytes at an address, however its bytes lie.

    It takes an address and calls each part once: to compile takes seconds, and is done for each type of an argument
    and each call.
    """
    if is_shuffled or is_swapped:
        _assemble_row(row, start, size // width if is_shuffled else _NONE, width, is_swapped)
    else:
        _paste_row(row, start + row[FIRST], width)


@compiled(BYTES, TABLE, uint64, uint64, uint64, boolean, boolean)
def paste(source: Any, table: Any, begin: int, end: int, width: int, is_shuffled: bool, is_swapped: bool) -> None:
    """Paste rows `begin` to `end` of a plan out of one chunk.

    A shuffled chunk of N elements has its bytes in planes N apart, the lowest first; a big-endian one has them next
    to each other, the highest first.
    """
    start, size = uint64(source.ctypes.data), uint64(len(source))
    for number in range(begin, end):
        paste_part(start, size, table[number], width, is_shuffled, is_swapped)


@compiled(TABLE, uint64, uint64, uint64, boolean)
def paste_mapped(table: Any, begin: int, end: int, width: int, is_swapped: bool) -> None:
    """Paste rows whose FIRST and STOP are addresses: of chunks that lie in memory, not shuffled."""
    for number in range(begin, end):
        row = table[number]
        if is_swapped:
            _assemble_row(row, _NONE, _NONE, width, is_swapped)
        else:
            _paste_row(row, row[FIRST], width)
