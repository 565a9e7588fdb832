"""Tiles in memory, compared with the cube that they are of."""

from __future__ import annotations

import numpy as np

from voxload.convert.encode.staging import Staging
from voxload.convert.plan.tiles import Tiling, cuts
from voxload.readers.protocol import Volume


def compare_chunks(staging: Staging, tiling: Tiling, width: int, volume: Volume) -> list[bool]:
    """Compare every chunk with the cube, (C, D, H, W), and tell of each whether it may be stored as it is."""
    buffer, found = staging.buffer(), []
    for tile in tiling.tiles():
        held = staging.read(tile, buffer)
        whole = volume[(slice(None), *tile.slices)]
        assert held.nbytes == whole.nbytes
        for cut in cuts(tiling, (tile.shape[0], tile.shape[1], tile.shape[2])):
            for group in range(len(whole) // width):
                voxels = held.voxels(cut, group)
                channels = slice(group * width, (group + 1) * width)
                np.testing.assert_array_equal(voxels, whole[(channels, *cut.slices)])
                found.append(voxels.flags.c_contiguous)
    return found
