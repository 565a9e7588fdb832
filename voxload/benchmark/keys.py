"""Keys: numbers that look random and follow from a voxel's place alone, so that any block can be made by itself.

A row of voxels has a key, mixed from the stream and the row's (d, h), and a column has one of its w. A voxel's number
is a multiple of the two, one over the other: three passes of 32-bit integers, which is as fast as memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxload.geometry import Box

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
