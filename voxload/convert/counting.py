"""Counting: the statistics of a chunk's voxels, channel by channel, without the interpreter lock.

Numbers of up to two bytes are counted value by value. Others pass block by block through the nearest cache, as
float64; sums are of eight numbers that are eight apart, added up in one order, so they are the same on any machine.
"""

from __future__ import annotations

import threading
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import float32, float64, int32, int64, types, uint16, uint32, uint64

from voxload.convert.counts import Counts, is_counted_by_value
from voxload.readers.kernels import compiled, part
from voxload.readers.protocol import Volume
from voxload.statistics import BINS, Statistics

_LANES = 4
"""Tables that take turns: an increment need not wait for that of an equal neighbour."""
_APART = 80
"""Places by which equal keys of two tables are not a power of two apart: they would push each other out of caches."""
_WIDTHS = {1: np.uint8, 2: np.uint16}
_KERNEL_TYPES = (float32, float64, int32, int64, uint32, uint64)
_TABLE, _NUMBERS, _PLACES = types.Array(uint32, 2, "C"), types.Array(float64, 1, "C"), types.Array(uint16, 1, "C")
_BLOCK = uint64(2048)
"""Voxels at once: as float64 they take a third of the smallest near cache."""
_SUMS = uint64(8)
_SMALL_BITS = uint64(7)
_SMALL = uint64(1) << _SMALL_BITS
"""Values from which on two neighbours are no longer counted as a pair."""
_RUN = 64
"""Keys that are looked at together: most are of none that occur."""
_SIGN, _SHIFT = uint64(1 << 63), uint64(48)
_ZERO, _ONE = uint64(0), uint64(1)


def count_channels(chunk: Volume) -> list[Counts]:
    """Return what the voxels of each channel are like; ``(C, ...)`` of any number type of up to 8 bytes."""
    return [_count(np.ascontiguousarray(channel).reshape(-1)) for channel in chunk]


def _count(flat: Volume) -> Counts:
    return _count_short(flat) if is_counted_by_value(flat.dtype) else _count_wide(flat)


class _Room(threading.local):
    """A thread's tables of counts, all zero between calls, and room for what is found in them."""

    def __init__(self) -> None:
        self.tables = np.zeros((_LANES, BINS + _APART), np.uint32)
        self.pairs = np.zeros((2, int(_SMALL * _SMALL)), np.uint32)
        self.found = np.empty((2, BINS), np.uint32)
        self.block = np.empty(int(_BLOCK), np.float64)
        self.places = np.empty(int(_BLOCK), np.uint16)
        self.figures = np.empty(6, np.float64)


_room = _Room()


def _count_short(flat: Volume) -> Counts:
    kind = _WIDTHS[flat.dtype.itemsize]
    different = _TALLIES[flat.dtype.itemsize](flat.view(kind), _room.tables, _room.pairs, _room.found)
    return Counts(flat.dtype, *_found(different))


def _found(different: int) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint32]]:
    keys, voxels = _room.found[:, :different]
    return keys.astype(np.uint16), voxels.copy()


@part
def _count_keys(tables: Any, keys: Any, begin: Any, end: Any) -> None:
    """Count keys from one place to another."""
    whole = begin + (end - begin) // uint64(4) * uint64(4)
    for place in range(begin, whole, uint64(4)):
        tables[0, keys[place]] += uint32(1)
        tables[1, keys[place + _ONE]] += uint32(1)
        tables[2, keys[place + uint64(2)]] += uint32(1)
        tables[3, keys[place + uint64(3)]] += uint32(1)
    for place in range(whole, end):
        tables[0, keys[place]] += uint32(1)


@part
def _gather(tables: Any, found: Any, last: Any) -> Any:
    """List the keys up to `last` whose sums are not zero, and the sums; zero the tables; return how many."""
    different, run = _ZERO, uint64(_RUN)
    for begin in range(_ZERO, last + _ONE, run):
        union = uint32(0)
        for key in range(begin, begin + run):
            union |= tables[0, key] | tables[1, key] | tables[2, key] | tables[3, key]
        if union:
            for key in range(begin, begin + run):
                count = tables[0, key] + tables[1, key] + tables[2, key] + tables[3, key]
                if count:
                    found[0, different], found[1, different] = key, count
                    different += _ONE
                    tables[0, key] = tables[1, key] = tables[2, key] = tables[3, key] = 0
    return int64(different)


@part
def _part_pairs(pairs: Any, tables: Any, last: Any) -> None:
    """Count the values up to `last` of both voxels of each pair, and zero the pairs."""
    for high in range(_ZERO, last + _ONE):
        row, total = high << _SMALL_BITS, uint32(0)
        for low in range(_ZERO, last + _ONE):
            count = pairs[0, row + low] + pairs[1, row + low]
            pairs[0, row + low] = pairs[1, row + low] = 0
            tables[0, low] += count
            total += count
        tables[1, high] += total


def _tally(flat: Any, tables: Any, pairs: Any, found: Any) -> Any:
    """List the values that occur, ascending, and how often; return how many there are and leave the tables zero."""
    size, union, paired = uint64(flat.size), _ZERO, _ZERO
    for begin in range(_ZERO, size, _BLOCK):
        end, bits = min(begin + _BLOCK, size), flat[begin]
        for place in range(begin, end):
            bits |= flat[place]
        whole = begin + (end - begin) // uint64(4) * uint64(4)
        if bits < _SMALL:
            paired |= bits
            for place in range(begin, whole, uint64(4)):
                pairs[0, flat[place] | uint64(flat[place + _ONE]) << _SMALL_BITS] += uint32(1)
                pairs[1, flat[place + uint64(2)] | uint64(flat[place + uint64(3)]) << _SMALL_BITS] += uint32(1)
        else:
            whole = begin
        _count_keys(tables, flat, whole, end)
        union |= bits
    _part_pairs(pairs, tables, paired)
    return _gather(tables, found, union)


_TALLIES: dict[int, Any] = {
    np.dtype(kind).itemsize: compiled(
        types.Array(numba.from_dtype(np.dtype(kind)), 1, "C"), _TABLE, _TABLE, _TABLE, returns=int64
    )(_tally)
    for kind in _WIDTHS.values()
}


def _count_wide(flat: Volume) -> Counts:
    different = _KERNELS[flat.dtype](flat, _room.block, _room.places, _room.tables, _room.found, _room.figures)
    nans, infinite, low, high, mean, deviations = _room.figures.tolist()
    finite = flat.size - int(nans) - int(infinite)
    figures = Statistics(finite, int(nans), int(infinite), low, high, mean, deviations)
    return Counts(flat.dtype, *_found(different), figures)


@part
def _sum_block(block: Any, size: Any) -> float:
    """Return the sum of a block."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    whole = size // _SUMS * _SUMS
    for i in range(_ZERO, whole, _SUMS):
        s0, s1, s2, s3 = s0 + block[i], s1 + block[i + _ONE], s2 + block[i + uint64(2)], s3 + block[i + uint64(3)]
        s4, s5 = s4 + block[i + uint64(4)], s5 + block[i + uint64(5)]
        s6, s7 = s6 + block[i + uint64(6)], s7 + block[i + uint64(7)]
    for i in range(whole, size):
        s0 += block[i]
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@part
def _key(bits: Any) -> Any:
    """Return signed numbers in the order of the float64 that have these bits; a second call turns them back."""
    return int64(bits) ^ int64(uint64(int64(bits) >> int64(63)) >> _ONE)


@part
def _keep_finite(block: Any, size: Any, figures: Any) -> Any:
    """Count NaNs and infinities, and move the rest to the block's beginning; return how many they are."""
    kept = _ZERO
    for place in range(size):
        value = block[place]
        if value != value:  # noqa: PLR0124 - true of NaN alone
            figures[0] += 1
        elif value in (np.inf, -np.inf):
            figures[1] += 1
        else:
            block[kept] = value
            kept += _ONE
    return kept


def _measure(flat: Any, block: Any, places: Any, tables: Any, found: Any, figures: Any) -> Any:
    """Write NaNs, infinities, minimum, maximum, mean and squared deviations; list bins; return how many there are.

    Means of blocks are merged as those of chunks. Source: Chan, Golub and LeVeque 1983, equation 2.1.
    """
    bits = block.view(np.uint64)
    low, high = int64(2**63 - 1), int64(-(2**63))
    count, mean, deviations = 0.0, 0.0, 0.0
    figures[0] = figures[1] = 0.0
    size = uint64(flat.size)
    for begin in range(_ZERO, size, _BLOCK):
        held = min(_BLOCK, size - begin)
        for place in range(held):
            block[place] = float64(flat[begin + place]) + 0.0  # minus zero becomes zero
        total = _sum_block(block, held)
        if not np.isfinite(total):
            held = _keep_finite(block, held, figures)
            total = _sum_block(block, held)
        if not held:
            continue
        for place in range(held):
            key = _key(bits[place])
            low, high = min(low, key), max(high, key)
            places[place] = uint64(key ^ int64(_SIGN)) >> _SHIFT
        _count_keys(tables, places, _ZERO, held)
        middle = total / held
        for place in range(held):
            block[place] = (block[place] - middle) ** 2
        after = count + held
        apart, share = middle - mean, held / after
        deviations += _sum_block(block, held) + apart * apart * count * share
        mean, count = mean + apart * share, after
    bits[0], bits[1] = uint64(_key(low)), uint64(_key(high))
    figures[2], figures[3] = (block[0], block[1]) if count else (np.inf, -np.inf)
    figures[4], figures[5] = mean, deviations
    return _gather(tables, found, uint64(BINS - 1))


_KERNELS: dict[Any, Any] = {
    np.dtype(str(kind)): compiled(
        types.Array(kind, 1, "C"), _NUMBERS, _PLACES, _TABLE, _TABLE, _NUMBERS, returns=int64
    )(_measure)
    for kind in _KERNEL_TYPES
}
