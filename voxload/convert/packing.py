"""Packing: voxels as the source stores them, gathered into a chunk."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from voxload.readers.kernels import compiled
from voxload.readers.protocol import Volume
from voxload.turning import copy_turned

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def pack(chunk: Volume, voxels: Volume) -> None:
    """Copy ``(C, d, h, w)`` voxels of any strides into a writable view of the same shape and type.

    Safe to call from many threads at once; channels that alternate in the source are parted in one pass.
    """
    width = voxels.itemsize
    if voxels.strides[3] == width or voxels.shape[3] == 1:
        np.copyto(chunk, voxels)
    elif len(voxels) > 1 and voxels.strides[0] == width and width in _BITS and chunk.strides[3] == width:
        _kernel(width)(chunk.view(_BITS[width]), voxels.view(_BITS[width]).transpose(1, 2, 3, 0))
    else:
        copy_turned(chunk, voxels)


def _part_channels(chunk: Any, voxels: Any) -> None:
    """Copy (d, h, w, C) voxels, channels fastest, into a (C, d, h, w) chunk."""
    channels, depth, height, width = chunk.shape
    for d in range(depth):
        for h in range(height):
            for c in range(channels):
                for w in range(width):
                    chunk[c, d, h, w] = voxels[d, h, w, c]


@cache
def _kernel(width: int) -> Callable[[Volume, Volume], None]:
    """Return the copy of voxels of so many bytes; takes a second the first time on a machine."""
    element = numba.from_dtype(np.dtype(_BITS[width]))
    kernel: Callable[..., None] = compiled(types.Array(element, 4, "A"), types.Array(element, 4, "A"))(_part_channels)
    return kernel
