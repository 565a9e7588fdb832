"""Matter: counts of dark matter as a simulated universe has them, made block by block.

A log-normal over-density that is correlated over some twenty voxels, and a Poisson draw for each voxel. The Gaussian
field below it is a sum of noise on lattices of 16, 8, 4 and 2 voxels, each interpolated; the draw looks a random number
up in a table of the Poisson distribution. Fields are integers, so that every machine makes the same.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxload.benchmark.generate.values import TILE_VOXELS, stream, words
from voxload.errors import UsageError
from voxload.geometry import Box, slabs
from voxload.readers.protocol import Volume

MEAN_COUNT = 2.0
"""Counts of a voxel on average."""
CONTRAST = 1.5
"""Standard deviation of the logarithm of the first channel's density."""
GROWTH = 0.85
"""Contrast of a channel over that of the one before, an earlier time; from the fourth channel on it stays."""

_FIELD, _DRAWS = 3, 4
_AMPLITUDES = (0, 1, 2, 2, 1)
"""Of the noise on lattices of 1, 2, 4, 8 and 16 voxels."""
_SIGMA = 267
"""Standard deviation of their sum, measured."""
_TIMES = 4
_LEVELS, _SIGMAS = 128, 4
"""Densities that are told apart, over as many standard deviations to each side."""
_DRAW_BITS = 11
_TILE = (32, 64, 128)
"""Extents of what is made at once, whole cells of the widest lattice."""

Field = NDArray[np.int32]


class Matter:
    """Counts with the statistics of a universe; channels are times of one universe; see the Values contract.

    gzip makes them about four times smaller as int16, blosc with zstd about six times.

    Parameters
    ----------
    dtype
        Integers of 2 bytes or more.
    seed
        Of the data set, 0 or more.

    Raises
    ------
    UsageError
        When the type is another.
    """

    def __init__(self, dtype: np.dtype[Any], seed: int) -> None:
        if dtype.kind not in "iu" or dtype.itemsize < 2:
            raise UsageError(
                "values counts",
                found=f"dtype {dtype}",
                expected="integers of 2 bytes or more, such as i2",
                remedy="values floats are for floats, values pattern for any type",
            )
        self.dtype = dtype.newbyteorder("=")
        self._seed = seed

    def fill(self, box: Box, out: Volume, *, sample: int) -> None:
        """See `Values.fill`."""
        lattices = tuple(stream(self._seed, _FIELD, sample, number) for number in range(len(_AMPLITUDES)))
        draws = tuple(stream(self._seed, _DRAWS, sample, channel) for channel in range(len(out)))
        for tile in slabs(box, _TILE, most=TILE_VOXELS):
            rows = _rows(_field(lattices, tile))
            target = out[(slice(None), *tile.relative_to(box.start).slices)]
            for channel, start in enumerate(draws):
                place = words(start, tile) >> np.uint32(32 - _DRAW_BITS)
                place += rows
                target[channel] = poisson_table(min(channel, _TIMES - 1)).take(place.astype(np.intp), mode="clip")


@cache
def poisson_table(time: int) -> NDArray[np.uint16]:
    """Return counts by density and by a random number: `_LEVELS` rows of ``2**_DRAW_BITS``, in one line."""
    contrast = CONTRAST * GROWTH**time
    chances = (np.arange(2**_DRAW_BITS) + 0.5) / 2**_DRAW_BITS
    rows = []
    for level in range(_LEVELS):
        deviation = (level + 0.5 - _LEVELS / 2) * 2 * _SIGMAS / _LEVELS
        mean = MEAN_COUNT * math.exp(contrast * deviation - contrast**2 / 2)
        rows.append(np.searchsorted(_poisson(mean), chances))
    return np.concatenate(rows).astype(np.uint16)


def _poisson(mean: float) -> NDArray[np.float64]:
    """Return the chances of at most 0, 1, 2, ... counts, as far as they differ from 1."""
    counts = np.arange(1, int(mean + 10 * math.sqrt(mean)) + 20)
    logarithms = np.concatenate(([0.0], np.cumsum(math.log(mean) - np.log(counts)))) - mean
    return np.cumsum(np.exp(logarithms))


def _rows(field: Field) -> NDArray[np.uint32]:
    """Return where the table's row of each voxel's density begins."""
    field *= _LEVELS * 2**8 // (2 * _SIGMAS * _SIGMA)
    field >>= 8
    field += _LEVELS // 2
    np.clip(field, 0, _LEVELS - 1, out=field)
    field <<= _DRAW_BITS
    return field.view(np.uint32)


def _field(lattices: tuple[np.uint64, ...], box: Box) -> Field:
    """Return the Gaussian field, each lattice twice as fine as the one before; `lattices` from the finest on."""
    boxes = [box]
    for _ in lattices[1:]:
        boxes.append(Box(tuple(lo // 2 for lo in boxes[-1].start), tuple(hi // 2 + 1 for hi in boxes[-1].stop)))
    field = _noise(lattices[-1], boxes[-1]) * _AMPLITUDES[-1]
    for number in reversed(range(len(lattices) - 1)):
        field = _refined(field, boxes[number])
        if _AMPLITUDES[number]:
            field += _noise(lattices[number], boxes[number]) * _AMPLITUDES[number]
    return field


def _noise(start: np.uint64, box: Box) -> Field:
    """Return nearly Gaussian numbers around 0, of standard deviation 148: sums of four bytes."""
    drawn = words(start, box)
    total = (drawn >> np.uint32(24)).astype(np.int32)
    for shift in (0, 8, 16):
        total += ((drawn >> np.uint32(shift)) & np.uint32(255)).astype(np.int32)
    return total - 510


def _refined(field: Field, box: Box) -> Field:
    """Return `box` of the lattice twice as fine, interpolated; `field` begins at half of it."""
    for axis in (2, 1, 0):  # the last step, the largest, is then of whole planes
        extent = field.shape[axis]
        fine = np.empty((*field.shape[:axis], 2 * extent - 1, *field.shape[axis + 1 :]), field.dtype)
        # Views with the axis in front; memory stays in the order of (d, h, w).
        source, target = np.moveaxis(field, axis, 0), np.moveaxis(fine, axis, 0)
        np.multiply(source, 2, out=target[::2])
        np.add(source[1:], source[:-1], out=target[1::2])
        field = fine
    inside = tuple(slice(lo % 2, lo % 2 + extent) for lo, extent in zip(box.start, box.shape, strict=True))
    return field[inside] >> 3
