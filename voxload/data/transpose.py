"""Blocked transpose: voxels as stored, copied into a view that is turned, in one pass that caches can follow.

A plain copy between arrays of other axis orders touches a cache line again for each of its voxels: up to thirty times
slower than reading. Here small squares are copied by way of buffers in the nearest cache, so each line is touched
once, even where lines lie a power of two apart and push each other out. Copies hold no interpreter lock, and the
process's team of threads shares them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types, uint64

from voxload.geometry import split
from voxload.readers.compiling import NUMBERS, compiled, part
from voxload.readers.pasting.intrinsics import PIECE, copy, copy_piece
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address
from voxload.readers.team import team

_SIDE = 32
"""Voxels along a square: a line of 2-byte voxels; two buffers of 8-byte ones take half of the smallest near cache."""
_SHARE_BYTES = 2**20
"""Copies are parted among threads into pieces of about this size."""
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@part
def _copy_row(to: Any, at: Any, size: Any) -> None:
    """Copy a row of a square; whole ones piece by piece, for a call of memcpy takes longer than that."""
    piece = uint64(PIECE)
    if size % piece:
        copy(to, at, size)
        return
    for place in range(uint64(0), size, piece):
        copy_piece(to + place, at + place)


@part
def _turn(turned: Any, loaded: Any, height: Any, count: Any, is_reversed: Any) -> None:
    """Turn a square in its buffers; reversed, its columns run backwards."""
    if is_reversed:
        for b in range(height):
            for k in range(count):
                turned[b, k] = loaded[count - uint64(1) - k, b]
    else:
        for b in range(height):
            for k in range(count):
                turned[b, k] = loaded[k, b]


def _copy(numbers: Any, loaded: Any, turned: Any) -> None:
    """Copy (c, a, b, k), square by square of the last two axes, of which the source's rows go along b.

    Parameters
    ----------
    numbers
        The addresses of target and source, the extents (4), the target's strides in bytes (4), of which the last is a
        voxel's width or its negative, and the source's (4). Unsigned, so that what is negative wraps around.
    loaded, turned
        Buffers of one square.
    """
    side, width = uint64(_SIDE), uint64(loaded.itemsize)
    row = side * width
    buffer, result = uint64(loaded.ctypes.data), uint64(turned.ctypes.data)
    is_reversed = numbers[9] != width
    for c in range(numbers[2]):
        for a in range(numbers[3]):
            to = numbers[0] + c * numbers[6] + a * numbers[7]
            at = numbers[1] + c * numbers[10] + a * numbers[11]
            for first in range(uint64(0), numbers[4], side):
                height = min(side, numbers[4] - first)
                for begin in range(uint64(0), numbers[5], side):
                    count = min(side, numbers[5] - begin)
                    for k in range(count):
                        _copy_row(
                            buffer + k * row, at + first * numbers[12] + (begin + k) * numbers[13], height * width
                        )
                    _turn(turned, loaded, height, count, is_reversed)
                    lowest = begin + count - uint64(1) if is_reversed else begin
                    for b in range(height):
                        _copy_row(to + (first + b) * numbers[8] + lowest * numbers[9], result + b * row, count * width)


@cache
def _kernel(width: int) -> Callable[[npt.NDArray[np.uint64], Volume, Volume], None]:
    """Return the copy of voxels of so many bytes; takes a second the first time on a machine."""
    square = types.Array(numba.from_dtype(np.dtype(_BITS[width])), 2, "C")
    kernel: Callable[..., None] = compiled(NUMBERS, square, square)(_copy)
    return kernel


def copy_turned(target: Volume, source: Volume) -> None:
    """Copy ``(C, d, h, w)`` voxels into a writable view of the same shape and type, whatever its strides.

    Safe to call from many threads at once.
    """
    width, rows, columns = target.itemsize, _near(source), _near(target)
    is_plain = source.strides[rows] == width and abs(target.strides[columns]) == width
    if width not in _BITS or not target.size or rows == columns or not is_plain:
        np.copyto(target, source)
        return
    order = (0, 6 - rows - columns, rows, columns)
    to, at = target.transpose(order), source.transpose(order)
    longest = max((1, 2), key=lambda axis: to.shape[axis])
    shares = max(1, min(to.nbytes // _SHARE_BYTES, -(-to.shape[longest] // _SIDE)))
    bounds, kernel = split(to.shape[longest], shares), _kernel(width)

    def copy_share(number: int) -> None:
        share = (slice(None),) * longest + (slice(bounds[number], bounds[number + 1]),)
        mine, its = to[share], at[share]
        numbers = [address(mine), address(its), *mine.shape, *mine.strides, *its.strides]
        squares = np.empty((2, _SIDE, _SIDE), _BITS[width])
        kernel(np.array([number % 2**64 for number in numbers], np.uint64), squares[0], squares[1])

    if shares == 1:
        copy_share(0)
    else:
        team().run(copy_share, range(shares))


def _near(volume: Volume) -> int:
    """Return the spatial axis along which voxels are next to each other."""
    return min((1, 2, 3), key=lambda axis: (volume.shape[axis] == 1, abs(volume.strides[axis])))
