"""Values of generated voxels: they follow from a voxel's place, so that any block can be made and checked.

Keys: numbers that look random and follow from a voxel's place alone, so that any block can be made by itself. A row
of voxels has a key, mixed from the stream and the row's (d, h), and a column has one of its w. A voxel's number is a
multiple of the two, one over the other: three passes of 32-bit integers, which is as fast as memory.

Pattern: values that say where they belong, and the check of a block against them. Every value follows from seed,
sample, channel and place, so that what a loader delivers is compared with what ought to be there without the file and
without the rest of the sample. A voxel from a wrong place differs, but for chance: one in 256 for bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from voxload.errors import UsageError
from voxload.geometry import Boundary, Box, Piece, pieces, slabs
from voxload.readers.protocol import Volume

Words = NDArray[np.uint32]
"""Random bits, 32 for each voxel of a box, ``(d, h, w)``."""

TILE_VOXELS = 2**18
"""Voxels whose numbers are made at once: their intermediate results stay in a core's own memory."""

_ALONG_D, _ALONG_H, _ALONG_W = (np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW_HALF, _HIGH_HALF = np.uint32(0x2C1B3C6D), np.uint32(0x9E3779B1)
_HALF = np.uint64(32)


def stream(*words: int) -> np.uint64:
    """Return the start of a stream of numbers; streams of different words, each 0 or more, have nothing in common."""
    return np.uint64(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])


def words(start: np.uint64, box: Box) -> Words:
    """Return a number for each voxel of a spatial box whose indices are 0 or more.

    The same voxel has the same number in every box, on every machine.
    """
    return _spread(_over(start, box) * _HIGH_HALF)


def long_words(start: np.uint64, box: Box) -> NDArray[np.uint64]:
    """Return what `words` does, with 64 bits for each voxel."""
    mixed = _over(start, box)
    high = _spread(mixed * _HIGH_HALF).astype(np.uint64)
    high <<= _HALF
    high |= _spread(mixed * _LOW_HALF)
    return high


def _over(start: np.uint64, box: Box) -> Words:
    """Return the rows' keys over the columns' keys."""
    d, h, w = (_indices(lo, hi) for lo, hi in zip(box.start, box.stop, strict=True))
    rows = _mixed((d * _ALONG_D)[:, np.newaxis] + (h * _ALONG_H)[np.newaxis] + start)
    return rows[..., np.newaxis] ^ _mixed(w * _ALONG_W + _FIRST)


def _spread(product: Words) -> Words:
    """Let the high bits of a product, which depend on all bits of its factors, decide on the low ones too."""
    product ^= product >> np.uint32(15)
    return product


def _indices(start: int, stop: int) -> NDArray[np.uint64]:
    return np.arange(start, stop, dtype=np.uint64)


def _mixed(keys: NDArray[np.uint64]) -> Words:
    """Return 32 bits that all bits of a key decide on: the mixer of SplitMix64 (Steele et al., OOPSLA 2014)."""
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        keys = (keys ^ (keys >> np.uint64(shift))) * factor
    mixed: NDArray[Any] = (keys ^ (keys >> np.uint64(31))) >> _HALF
    return mixed.astype(np.uint32)


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


_NOISE_STREAM = 2


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
            start = stream(self._seed, _NOISE_STREAM, sample, channel)
            for tile in slabs(box, (1, 1, 1), most=TILE_VOXELS):
                volume[tile.relative_to(box.start).slices] = self._tile(start, tile)

    def _tile(self, start: np.uint64, tile: Box) -> Volume:
        width = 8 * self.dtype.itemsize
        drawn = long_words(start, tile) if width == 64 else words(start, tile)
        bits = (drawn >> drawn.dtype.type(8 * drawn.itemsize - width)).astype(f"u{width // 8}")
        bits &= bits.dtype.type(2**width - 1 - 2 ** (width - 2))
        return bits.view(self.dtype)
