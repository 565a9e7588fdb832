"""Turning: voxels as stored, copied into a view that is turned, in one pass that caches can follow.

A plain copy between arrays of other axis orders touches a cache line again for each of its voxels: up to thirty times
slower than reading. Here small squares are copied by way of a buffer in the nearest cache, so each line is touched
once, even where lines lie a power of two apart and push each other out. Copies hold no interpreter lock, and the
process's team of threads shares them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types, uint64

from voxload.geometry import split
from voxload.readers.kernels import compiled
from voxload.readers.protocol import Volume
from voxload.readers.team import team

_SIDE = 32
"""Voxels along a square: a line of 2-byte voxels, and 8 KiB of 8-byte ones, a quarter of the smallest near cache."""
_SHARE_BYTES = 2**20
"""Copies are parted among threads into pieces of about this size."""
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _copy(target: Any, source: Any) -> None:
    """Copy (c, a, b, k), square by square of the last two axes; unsigned, so that no index is tested for its sign."""
    side, square = uint64(_SIDE), np.empty((_SIDE, _SIDE), source.dtype)
    rows, columns = uint64(target.shape[2]), uint64(target.shape[3])
    for c in range(target.shape[0]):
        for a in range(target.shape[1]):
            to, at = target[c, a], source[c, a]
            for first in range(uint64(0), rows, side):
                height = min(side, rows - first)
                for begin in range(uint64(0), columns, side):
                    width = min(side, columns - begin)
                    for k in range(width):
                        for b in range(height):
                            square[k, b] = at[first + b, begin + k]
                    for b in range(height):
                        for k in range(width):
                            to[first + b, begin + k] = square[k, b]


@cache
def _kernel(width: int) -> Callable[[Volume, Volume], None]:
    """Return the copy of voxels of so many bytes; takes a second the first time on a machine."""
    array = types.Array(numba.from_dtype(np.dtype(_BITS[width])), 4, "A")
    kernel: Callable[[Volume, Volume], None] = compiled(array, array)(_copy)
    return kernel


def copy_turned(target: Volume, source: Volume) -> None:
    """Copy ``(C, d, h, w)`` voxels into a writable view of the same shape and type, whatever its strides.

    Safe to call from many threads at once.
    """
    if target.itemsize not in _BITS or not target.size or _near(target) == _near(source):
        np.copyto(target, source)
        return
    bits = _BITS[target.itemsize]
    # The target's nearest axis goes last, the source's before it: the sides of the squares.
    order = sorted((1, 2, 3), key=lambda axis: (axis == _near(target), axis == _near(source)))
    to, at = target.view(bits).transpose(0, *order), source.view(bits).transpose(0, *order)
    longest = max((1, 2), key=lambda axis: to.shape[axis])
    parts = max(1, min(to.nbytes // _SHARE_BYTES, -(-to.shape[longest] // _SIDE)))
    bounds = split(to.shape[longest], parts)
    copy = _kernel(target.itemsize)

    def copy_part(number: int) -> None:
        share = (slice(None),) * longest + (slice(bounds[number], bounds[number + 1]),)
        copy(to[share], at[share])

    if parts == 1:
        copy_part(0)
    else:
        team().run(copy_part, range(parts))


def _near(volume: Volume) -> int:
    """Return the spatial axis along which voxels are next to each other."""
    return min((1, 2, 3), key=lambda axis: abs(volume.strides[axis]))
