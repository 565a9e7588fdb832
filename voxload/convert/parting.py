"""Parting: channels that alternate in memory, copied into a row for each, a line of the cache at a time.

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

from voxload.readers.addresses import LINE, copy
from voxload.readers.kernels import NUMBERS, compiled
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

MOST_CHANNELS = 8
"""Beyond, vectors no longer fit the registers of a processor."""
_UNITS = {1: uint8, 2: uint16, 4: uint32, 8: uint64}
_INDEX = ir.IntType(32)


def can_part(chunk: Volume, voxels: Volume) -> bool:
    """Tell whether voxels are what `part_channels` takes: channels next to each other, rows of a chunk contiguous."""
    width = voxels.itemsize
    channels = len(voxels)
    return (
        width in _UNITS
        and 1 < channels <= MOST_CHANNELS
        and voxels.strides[0] == width
        and voxels.strides[3] == channels * width
        and chunk.strides[3] == width
        and min(voxels.strides) > 0
        and min(chunk.strides) > 0
    )


def part_channels(chunk: Volume, voxels: Volume) -> None:
    """Copy ``(C, d, h, w)`` voxels that `can_part` accepts; safe to call from many threads at once."""
    numbers = [address(chunk), address(voxels), *voxels.shape[1:], *chunk.strides[1:3], *voxels.strides[1:3]]
    rows = tuple(channel * chunk.strides[0] for channel in range(len(voxels)))
    _kernel(len(voxels), voxels.itemsize)(np.array(numbers, np.uint64), rows)


def _part(numbers: Any, rows: Any, unit: Any) -> None:
    """Copy (d, h, w, C) voxels, channels fastest, into a row for each channel.

    Parameters
    ----------
    numbers
        The addresses of chunk and voxels, the extents (3), and the strides in bytes of d and h in each (2 and 2).
    rows
        Bytes from the chunk's start to each channel's first voxel.
    unit
        Any array of unsigned integers as wide as a voxel.
    """
    width = uint64(unit.itemsize)
    each, step = uint64(LINE) // width, uint64(LINE) * uint64(len(rows))
    lines = numbers[4] // each
    for d in range(numbers[2]):
        for h in range(numbers[3]):
            to = numbers[0] + d * numbers[5] + h * numbers[6]
            at = numbers[1] + d * numbers[7] + h * numbers[8]
            for _ in range(lines):
                _part_line(to, at, rows, unit)
                to += uint64(LINE)
                at += step
            for _ in range(numbers[4] - lines * each):
                for row in rows:
                    copy(to + row, at, width)
                    at += width
                to += width


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


@cache
def _kernel(channels: int, width: int) -> Callable[[npt.NDArray[np.uint64], tuple[int, ...]], None]:
    """Return the copy of voxels of so many channels and bytes; takes a second the first time on a machine."""
    unit = np.empty(0, f"u{width}")
    rows: Any = types.UniTuple
    kernel: Any = compiled(NUMBERS, rows(uint64, channels), types.Array(_UNITS[width], 1, "C"))(_part)

    def part(numbers: npt.NDArray[np.uint64], rows: tuple[int, ...]) -> None:
        kernel(numbers, rows, unit)

    return part
