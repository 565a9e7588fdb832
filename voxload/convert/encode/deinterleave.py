"""Deinterleaving: channels that alternate in memory, copied into a row for each, a line of the cache at a time.

A voxel's channels are one after the other in most raw cubes and far apart in a chunk. Copied one by one they take as
long as compressing does; as vectors that are shuffled, little longer than any copy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types, uint8, uint16, uint32, uint64
from numba.extending import intrinsic

from voxload.readers.compiling import NUMBERS, compiled, part
from voxload.readers.pasting.intrinsics import LINE, copy
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

MOST_CHANNELS = 8
"""Beyond, vectors no longer fit the registers of a processor."""
UNITS = {1: uint8, 2: uint16, 4: uint32, 8: uint64}
"""Unsigned numbers as wide as a voxel."""
_ZERO, _ONE = uint64(0), uint64(1)
_INDEX = ir.IntType(32)


def can_deinterleave(chunk: Volume, voxels: Volume) -> bool:
    """Tell whether `deinterleave_channels` takes voxels: channels next to each other, rows of a chunk contiguous."""
    width = voxels.itemsize
    channels = len(voxels)
    return (
        width in UNITS
        and 1 < channels <= MOST_CHANNELS
        and voxels.strides[0] == width
        and voxels.strides[3] == channels * width
        and chunk.strides[3] == width
        and min(voxels.strides) > 0
        and min(chunk.strides) > 0
    )


def deinterleave_channels(chunk: Volume, voxels: Volume) -> None:
    """Copy ``(C, d, h, w)`` voxels that `can_deinterleave` accepts; safe to call from many threads at once."""
    deinterleave_into_chunks(chunk[np.newaxis, np.newaxis, np.newaxis, np.newaxis], voxels, (0, 0, 0))


def deinterleave_into_chunks(chunks: Volume, voxels: Volume, start: tuple[int, int, int]) -> None:
    """Copy voxels to their places in chunks, all of one call in a row along w; safe to call from many threads at once.

    Parameters
    ----------
    chunks
        ``(groups, chunks along d, h and w, channels of a group, d, h, w)`` of one chunk, rows of voxels contiguous.
    voxels
        ``(C, d, h, w)`` with the channels of all groups next to each other in memory, or with contiguous rows.
    start
        Where the first voxel belongs: along w at the begin of a chunk.
    """
    rows = rows_of(chunks, len(voxels))
    numbers = plan_deinterleaving(chunks, voxels, start)
    if len(voxels) > 1 and voxels.strides[3] != voxels.itemsize:
        _kernel(len(voxels), voxels.itemsize)(numbers, rows)
        return
    for row in rows:
        _kernel(1, voxels.itemsize)(numbers, (row,))
        numbers[1] += np.uint64(voxels.strides[0])


def rows_of(chunks: Volume, channels: int) -> tuple[int, ...]:
    """Return how many bytes behind the chunks' begin each channel's first voxel is."""
    strides, width = chunks.strides, chunks.shape[4]
    return tuple(channel // width * strides[0] + channel % width * strides[4] for channel in range(channels))


def plan_deinterleaving(chunks: Volume, voxels: Volume, start: tuple[int, int, int]) -> npt.NDArray[np.uint64]:
    """Return the numbers that a kernel takes; parameters are those of `deinterleave_into_chunks`."""
    strides = chunks.strides
    extents = (*voxels.shape[1:], *chunks.shape[5:], *start)
    numbers = np.array((address(chunks), address(voxels), *extents, *strides[1:4], *strides[5:7], *voxels.strides[1:3]))
    return numbers.view(np.uint64)


def _make_part_line(_context: Any, to: Any, at: Any, rows: Any, unit: Any) -> Any:
    """Copy as many voxels as fill a line of each channel's row."""
    count, bits = len(rows), unit.dtype.bitwidth
    vector = ir.VectorType(ir.IntType(bits), 8 * LINE // bits)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> None:
        to, at, rows, _ = arguments
        lines = []
        for _ in range(count):
            lines.append(builder.load(builder.inttoptr(at, vector.as_pointer()), align=1))
            at = builder.add(at, ir.Constant(at.type, LINE))
        for channel, line in enumerate(_parted(builder, lines)):
            place = builder.add(to, builder.extract_value(rows, channel))
            builder.store(line, builder.inttoptr(place, vector.as_pointer()), align=1)

    return types.void(to, at, rows, unit), generate


def _parted(builder: Any, lines: list[Any]) -> list[Any]:
    """Return a vector for each channel of voxels whose channels alternate, as many as there are vectors."""
    if len(lines) % 2:
        return [_gathered(builder, lines, channel) for channel in range(len(lines))]
    # Even places and odd ones hold half of the channels each.
    pairs = list(zip(lines[::2], lines[1::2], strict=True))
    width = lines[0].type.count
    even, odd = (
        _parted(builder, [_shuffled(builder, *pair, range(first, 2 * width, 2)) for pair in pairs]) for first in (0, 1)
    )
    return [line for pair in zip(even, odd, strict=True) for line in pair]


def _gathered(builder: Any, lines: list[Any], channel: int) -> Any:
    """Return the vector of every so-manieth element from that of `channel` on."""
    width = lines[0].type.count
    places = [divmod(len(lines) * index + channel, width) for index in range(width)]
    found = lines[0] if len(lines) == 1 else _shuffled(builder, lines[0], lines[0], [place for _, place in places])
    for number, line in enumerate(lines[1:], 1):
        order = [width + place if which == number else index for index, (which, place) in enumerate(places)]
        found = _shuffled(builder, found, line, order)
    return found


def _shuffled(builder: Any, low: Any, high: Any, order: Any) -> Any:
    places = list(order)
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(_INDEX, len(places)), places))


_part_line: Any = intrinsic(_make_part_line)


def _make_width(_context: Any, unit: Any) -> Any:
    """Return the bytes of an array's element, as a constant for the compiler."""

    def generate(_context: Any, _builder: Any, signature: Any, _arguments: Any) -> Any:
        return ir.Constant(ir.IntType(64), signature.args[0].dtype.bitwidth // 8)

    return uint64(unit), generate


_width: Any = intrinsic(_make_width)


@part
def deinterleave_band(numbers: Any, rows: Any, unit: Any) -> None:
    """Copy (d, h, w, C) voxels, channels fastest, into a row for each channel.

    Parameters
    ----------
    numbers
        The addresses of chunks and voxels; the extents (d, h, w) of voxels and of a chunk, and the place of the
        first voxel; strides in bytes of chunks (3), and of d and h in a chunk and among the voxels (2 and 2).
    rows
        Bytes from a chunk's start to each channel's first voxel.
    unit
        Any array of unsigned integers as wide as a voxel.
    """
    size = _width(unit)
    each, step = uint64(LINE) // size, uint64(LINE * len(rows))
    # Local names: whatever is stored might be a number of the array, for all that a compiler knows.
    at_d, to_d, in_d = numbers[1], numbers[0] + numbers[8] // numbers[5] * numbers[11], numbers[8] % numbers[5]
    to_h, first_h = numbers[9] // numbers[6] * numbers[12], numbers[9] % numbers[6]
    height, width, long, wide = numbers[3], numbers[4], numbers[6], numbers[7]
    next_h, next_w = numbers[12], numbers[13]
    stride_d, stride_h, apart_d, apart_h = numbers[14], numbers[15], numbers[16], numbers[17]
    to_d += numbers[10] // wide * next_w
    for _ in range(numbers[2]):
        at_h, begin, in_h = at_d, to_d + in_d * stride_d + to_h, first_h
        for _ in range(height):
            at, row_begin, left = at_h, begin + in_h * stride_h, width
            while left:
                count, to = min(wide, left), row_begin
                lines = count // each
                for _ in range(lines):
                    _part_line(to, at, rows, unit)
                    to += uint64(LINE)
                    at += step
                for _ in range(count - lines * each):
                    for row in rows:
                        copy(to + row, at, size)
                        at += size
                    to += size
                row_begin += next_w
                left -= count
            at_h += apart_h
            in_h += _ONE
            if in_h == long:
                in_h, begin = _ZERO, begin + next_h
        at_d += apart_d
        in_d += _ONE
        if in_d == numbers[5]:
            in_d, to_d = _ZERO, to_d + numbers[11]


def _part(numbers: Any, rows: Any, unit: Any) -> None:
    deinterleave_band(numbers, rows, unit)


@cache
def _kernel(channels: int, width: int) -> Callable[[npt.NDArray[np.uint64], tuple[int, ...]], None]:
    """Return the copy of voxels of so many channels and bytes; takes a second the first time on a machine."""
    unit = np.empty(0, f"u{width}")
    rows: Any = types.UniTuple
    kernel: Any = compiled(NUMBERS, rows(uint64, channels), types.Array(UNITS[width], 1, "C"))(_part)

    def part_(numbers: npt.NDArray[np.uint64], rows: tuple[int, ...]) -> None:
        kernel(numbers, rows, unit)

    return part_
