"""Pattern: values that say where they belong, and the check of a block against them.

Every value follows from seed, sample, channel and place, so that what a loader delivers is compared with what ought to
be there without the file and without the rest of the sample. A voxel from a wrong place differs, but for chance: one
in 256 for bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol

import numpy as np

from voxload.benchmark.keys import TILE_VOXELS, long_words, stream, words
from voxload.errors import UsageError
from voxload.geometry import Boundary, Box, Piece, pieces
from voxload.readers.protocol import Volume
from voxload.slabs import slabs

_STREAM = 1
_PLANES = (1, 1, 1)


class Values(Protocol):
    """What the voxels of generated samples hold; immutable, and safe to share between threads."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a voxel, in this machine's byte order."""
        ...

    def fill(self, box: Box, out: Volume, *, sample: int) -> None:
        """Fill `out`, ``(C, *box.shape)`` of `dtype`, any strides, with a spatial box inside a sample.

        A voxel has the same value whatever box it is made with. Intermediate results take a few MiB.
        """
        ...


class Pattern:
    """Values that differ from voxel to voxel and fill their type's range; floats lie in [0, 1), on steps of 2**-bits.

    Floats are exact: a step is the type's own precision, so that nothing is rounded where they are only copied.

    Parameters
    ----------
    dtype
        Integers or floats of 1 to 8 bytes.
    seed
        Of the data set, 0 or more.

    Raises
    ------
    UsageError
        When the type is another.
    """

    def __init__(self, dtype: np.dtype[Any], seed: int) -> None:
        if dtype.kind not in "iuf" or dtype.itemsize > 8:
            raise UsageError("values pattern", found=f"dtype {dtype}", expected="integers or floats of 1 to 8 bytes")
        self.dtype = dtype.newbyteorder("=")
        self._seed = seed

    def fill(self, box: Box, out: Volume, *, sample: int) -> None:
        """See `Values.fill`."""
        for channel, volume in enumerate(out):
            start = stream(self._seed, _STREAM, sample, channel)
            for tile in slabs(box, _PLANES, most=TILE_VOXELS):
                volume[tile.relative_to(box.start).slices] = self._tile(start, tile)

    def _tile(self, start: np.uint64, tile: Box) -> Volume:
        drawn: Volume = long_words(start, tile) if self.dtype.itemsize == 8 else words(start, tile)
        return _steps(drawn, self.dtype) if self.dtype.kind == "f" else _whole(drawn, self.dtype)


def _steps(drawn: Volume, dtype: np.dtype[Any]) -> Volume:
    """Return unsigned numbers as floats in [0, 1), from as many of their high bits as the type holds exactly."""
    bits = np.finfo(dtype).nmant + 1
    kept: Volume = drawn >> drawn.dtype.type(8 * drawn.itemsize - bits)
    if dtype.itemsize == 2:  # numpy makes halves ten times slower than it looks them up
        return _halves().take(kept)
    found: Volume = kept.astype(dtype)
    found *= dtype.type(2.0**-bits)
    return found


@cache
def _halves() -> Volume:
    return (np.arange(2**11) / 2**11).astype(np.float16)


def _whole(drawn: Volume, dtype: np.dtype[Any]) -> Volume:
    """Return the high bits of unsigned numbers as integers of a type."""
    kept: Volume = drawn >> drawn.dtype.type(8 * (drawn.itemsize - dtype.itemsize))
    return kept.astype(f"u{dtype.itemsize}").view(dtype)


def check_block(
    values: Values,
    block: Volume,
    *,
    sample: int,
    box: Box,
    spatial: tuple[int, int, int],
    boundary: str | Boundary = Boundary.ZERO,
) -> str | None:
    """Compare a block with what it ought to hold and return a sentence about the first wrong voxel; None if all agree.

    The first is that of least (d, h, w), and there of the least channel. Bits are compared: 0.0 is not -0.0.

    Parameters
    ----------
    values
        What the samples hold.
    block
        What was delivered, ``(C, *box.shape)``.
    sample
        Number of the sample.
    box
        The voxels of the block, halo included, in indices of the sample; they may lie outside of it.
    spatial
        Extents (D, H, W) of the sample.
    boundary
        What lies outside: zeros, or the sample again.
    """
    if block.shape[1:] != box.shape or block.dtype != values.dtype:
        return f"sample {sample}: a block of {block.dtype} {block.shape[1:]} in place of {values.dtype} {box.shape}"
    outside = Boundary.parse(boundary)
    for part in slabs(box, _PLANES, most=max(TILE_VOXELS // len(block), 1)):
        found = block[(slice(None), *part.relative_to(box.start).slices)]
        expected = _expected(values, found, pieces(part, spatial, outside), sample=sample)
        place = _first_difference(found, expected)
        if place is not None:
            channel, *offset = place
            where = tuple(lo + index for lo, index in zip(part.start, offset, strict=True))
            note = _outside_note(where, spatial, outside)
            return f"sample {sample}, channel {channel}, voxel {where}{note}: {found[place]}, not {expected[place]}"
    return None


def _expected(values: Values, like: Volume, cut: Iterable[Piece], *, sample: int) -> Volume:
    """Return what a part like `like` ought to hold, of which these pieces lie in the sample."""
    expected = np.zeros(like.shape, like.dtype)
    for piece in cut:
        values.fill(piece.source, expected[(slice(None), *piece.target.slices)], sample=sample)
    return expected


def _first_difference(found: Volume, expected: Volume) -> tuple[int, int, int, int] | None:
    bits = f"u{found.itemsize}"
    wrong = np.moveaxis(found.view(bits) != expected.view(bits), 0, -1)
    if not wrong.any():
        return None
    d, h, w, channel = (int(index) for index in np.unravel_index(np.argmax(wrong), wrong.shape))
    return channel, d, h, w


def _outside_note(where: tuple[int, ...], spatial: tuple[int, ...], outside: Boundary) -> str:
    if all(0 <= index < extent for index, extent in zip(where, spatial, strict=True)):
        return ""
    return f", outside the sample, where {'zeros are' if outside is Boundary.ZERO else 'it begins again'}"
