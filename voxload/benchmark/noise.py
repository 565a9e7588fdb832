"""Noise: floats that no codec makes smaller, for the storage's speed without a decoder's."""

from __future__ import annotations

from typing import Any

import numpy as np

from voxload.benchmark.keys import TILE_VOXELS, long_words, stream, words
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.protocol import Volume
from voxload.slabs import slabs

_STREAM = 2


class Noise:
    """Floats of which every bit but one is random; see the Values contract.

    The exponent's highest bit is 0, so that all are finite and below 2, and sums of them do not overflow.

    Parameters
    ----------
    dtype
        Floats of 2, 4 or 8 bytes.
    seed
        Of the data set, 0 or more.

    Raises
    ------
    UsageError
        When the type is another.
    """

    def __init__(self, dtype: np.dtype[Any], seed: int) -> None:
        if dtype.kind != "f" or dtype.itemsize not in (2, 4, 8):
            raise UsageError(
                "values floats",
                found=f"dtype {dtype}",
                expected="f2, f4 or f8",
                remedy="values pattern are integers that no codec makes smaller",
            )
        self.dtype = dtype.newbyteorder("=")
        self._seed = seed

    def fill(self, box: Box, out: Volume, *, sample: int) -> None:
        """See `Values.fill`."""
        for channel, volume in enumerate(out):
            start = stream(self._seed, _STREAM, sample, channel)
            for tile in slabs(box, (1, 1, 1), most=TILE_VOXELS):
                volume[tile.relative_to(box.start).slices] = self._tile(start, tile)

    def _tile(self, start: np.uint64, tile: Box) -> Volume:
        width = 8 * self.dtype.itemsize
        drawn = long_words(start, tile) if width == 64 else words(start, tile)
        bits = (drawn >> drawn.dtype.type(8 * drawn.itemsize - width)).astype(f"u{width // 8}")
        bits &= bits.dtype.type(2**width - 1 - 2 ** (width - 2))
        return bits.view(self.dtype)
