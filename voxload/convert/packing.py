"""Packing: voxels as the source stores them, gathered into a chunk."""

from __future__ import annotations

import numpy as np

from voxload.convert.parting import can_part, part_channels
from voxload.readers.protocol import Volume
from voxload.turning import copy_turned


def pack(chunk: Volume, voxels: Volume) -> None:
    """Copy ``(C, d, h, w)`` voxels of any strides into a writable view of the same shape and type.

    Safe to call from many threads at once.
    """
    if can_part(chunk, voxels):
        part_channels(chunk, voxels)
    elif voxels.strides[3] == voxels.itemsize or voxels.shape[3] == 1:
        np.copyto(chunk, voxels)
    else:
        copy_turned(chunk, voxels)
