"""Counting: the statistics of a chunk's voxels, one channel, in one pass without the interpreter lock."""

from __future__ import annotations

import threading
from typing import Any

import numba
import numpy as np
from numba import float32, float64, int32, int64, types, uint32, uint64

from voxload.readers.kernels import compiled
from voxload.readers.protocol import Volume
from voxload.statistics import BINS, Statistics, of_values

_TABLE = types.Array(uint32, 1, "C")
_TABLES = types.Array(uint32, 2, "C")
_LANES = 4
_WIDTHS = {1: np.uint8, 2: np.uint16}
_KERNEL_TYPES = (float32, float64, int32, int64, uint32, uint64)
_SIGN, _ALL = np.uint64(1 << 63), np.uint64((1 << 64) - 1)
_SHIFT, _TOP = np.uint64(48), np.uint64(63)
_ROW = 1 << 16
"""Voxels whose deviations are summed around one mean: the second pass over them is from a near cache."""


def count_voxels(voxels: Volume) -> Statistics:
    """Return the figures of a contiguous array of voxels; any number type of up to 8 bytes."""
    flat = voxels.reshape(-1)
    if flat.dtype.itemsize in _WIDTHS and flat.dtype.kind in "biu":
        return _count_short(flat)
    if flat.dtype.itemsize == np.dtype(np.float16).itemsize:
        flat = flat.astype(np.float32)
    return _count_wide(flat)


def _count_short(flat: Volume) -> Statistics:
    """Count how often each of at most 65,536 values occurs: all figures follow from that, exactly."""
    kind = _WIDTHS[flat.dtype.itemsize]
    tables, found = _tables()
    different = _TALLIES[flat.dtype.itemsize](flat.view(kind), tables, found)
    bits, counts = found[:, :different]
    values = bits.astype(kind).view(flat.dtype).astype(np.float64)
    order = np.argsort(values)
    return of_values(values[order], counts[order].astype(np.int64))


_LOCAL = threading.local()


def _tables() -> tuple[Volume, Volume]:
    """Return this thread's tables of counts, all zero, and room for what is found in them."""
    held: dict[str, tuple[Volume, Volume]] = _LOCAL.__dict__
    if "tables" not in held:
        held["tables"] = np.zeros((_LANES, 1 << 16), np.uint32), np.empty((2, 1 << 16), np.uint32)
    return held["tables"]


def _tally(flat: Any, tables: Any, found: Any) -> int:
    """Write the values that occur, ascending, and how often; return how many there are and leave the tables zero."""
    # Four tables: an increment need not wait for those of equal neighbours.
    quarters = flat.size // 4
    for index in range(quarters):
        tables[0, flat[4 * index]] += 1
        tables[1, flat[4 * index + 1]] += 1
        tables[2, flat[4 * index + 2]] += 1
        tables[3, flat[4 * index + 3]] += 1
    for index in range(4 * quarters, flat.size):
        tables[0, flat[index]] += 1
    last = 0
    for index in range(flat.size):
        last = max(last, flat[index])
    different = 0
    for value in range(last + 1):
        count = tables[0, value] + tables[1, value] + tables[2, value] + tables[3, value]
        if count:
            found[0, different], found[1, different] = value, count
            different += 1
            tables[0, value] = tables[1, value] = tables[2, value] = tables[3, value] = 0
    return different


_TALLIES: dict[int, Any] = {
    np.dtype(kind).itemsize: compiled(
        types.Array(numba.from_dtype(np.dtype(kind)), 1, "C"), _TABLES, _TABLES, returns=int64
    )(_tally)
    for kind in _WIDTHS.values()
}


def _count_wide(flat: Volume) -> Statistics:
    total = Statistics()
    bins = np.zeros(BINS, np.uint32)
    figures = np.zeros(6, np.float64)
    for first in range(0, flat.size, _ROW):
        figures[:] = 0, 0, np.inf, -np.inf, 0, 0
        part = flat[first : first + _ROW]
        _KERNELS[flat.dtype](part, figures, bins)
        nans, infinite, low, high, mean, deviations = figures.tolist()
        finite = part.size - int(nans) - int(infinite)
        total += Statistics(finite, int(nans), int(infinite), low, high, mean, deviations)
    numbers = np.flatnonzero(bins)
    found = dict(zip(numbers.tolist(), bins[numbers].tolist(), strict=True))
    return total + Statistics(bins=found)


def _measure(flat: Any, figures: Any, bins: Any) -> None:
    """Note NaNs, infinities, minimum, maximum, mean and squared deviations of a row, and add to the bins."""
    nans, infinite, low, high, total, kept = 0, 0, np.inf, -np.inf, 0.0, 0
    word = np.empty(1, np.float64)
    bits = word.view(np.uint64)
    for index in range(flat.size):
        value = float64(flat[index]) + 0.0
        if value != value:  # noqa: PLR0124 - true of NaN alone
            nans += 1
        elif value in (np.inf, -np.inf):
            infinite += 1
        else:
            low, high = min(low, value), max(high, value)
            total += value
            kept += 1
            word[0] = value
            flip = _ALL if bits[0] >> _TOP else _SIGN
            bins[(bits[0] ^ flip) >> _SHIFT] += 1
    mean, deviations = total / kept if kept else 0.0, 0.0
    for index in range(flat.size):
        apart = float64(flat[index]) - mean
        if -np.inf < apart < np.inf:
            deviations += apart * apart
    figures[0], figures[1], figures[2] = nans, infinite, low
    figures[3], figures[4], figures[5] = high, mean, deviations


_KERNELS: dict[Any, Any] = {
    np.dtype(str(kind)): compiled(types.Array(kind, 1, "C"), types.Array(float64, 1, "C"), _TABLE)(_measure)
    for kind in _KERNEL_TYPES
}
