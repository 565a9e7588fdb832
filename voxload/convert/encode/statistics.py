"""Counts: the statistics of a chunk's voxels, channel by channel, counted without the interpreter lock.

Counting: the statistics of a chunk's voxels, channel by channel, without the interpreter lock. Numbers of up to two
bytes are counted value by value. Others pass block by block through the nearest cache, as float64; sums are of eight
numbers that are eight apart, added up in one order, so they are the same on any machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import float64, from_dtype, int64, types, uint16, uint64

from voxload.catalog.statistics import BINS, Statistics, of_values
from voxload.convert.encode.histogram import TABLE, TABLES, count_keys, gather, value_histograms
from voxload.readers.compiling import compiled, part
from voxload.readers.protocol import Volume

_FOLD = 1 << 18
"""Keys listed from which on equal ones are put together; a chunk has at most 65,536."""
_NONE = Statistics()


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each key occurs among the voxels of one channel.

    Of numbers of at most two bytes, keys are the bits of their values, and all figures follow from them, exactly. Of
    others, keys are the numbers of bins.
    """

    dtype: np.dtype[Any]
    """Type of the voxels."""
    found: npt.NDArray[np.uint32]
    """Keys that occur, each once, and how many voxels have each: ``(2, keys)``."""
    figures: Statistics = _NONE
    """What does not follow from keys; without bins."""


class StatisticsSum:
    """Figures of the chunks of one channel, added up in the order in which they come; for one thread."""

    def __init__(self) -> None:
        self._total = Statistics()
        self._waiting: list[Counts] = []
        self._listed = 0

    def add(self, counts: Counts) -> None:
        """Add those of a chunk."""
        self._waiting.append(counts)
        self._listed += counts.found.shape[1]
        if self._listed > _FOLD:
            self._total, self._waiting, self._listed = self.total(), [], 0

    def total(self) -> Statistics:
        """Return the figures of all."""
        return self._total + total_of(self._waiting) if self._waiting else self._total


def is_counted_by_value(dtype: np.dtype[Any]) -> bool:
    """Tell whether voxels have so few values that each is counted."""
    return dtype.itemsize <= np.dtype(np.uint16).itemsize


def total_of(parts: list[Counts]) -> Statistics:
    """Return the figures of one channel's voxels in at least one chunk."""
    dtype = parts[0].dtype
    keys, voxels = np.concatenate([one.found for one in parts], axis=1)
    of_all = np.bincount(keys, voxels)  # as float64, which is exact for more voxels than any file has
    keys = np.flatnonzero(of_all)
    sums = of_all[keys].astype(np.int64)
    if is_counted_by_value(dtype):
        return _of_bits(keys.astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64), sums)
    figures = sum((one.figures for one in parts[1:]), parts[0].figures)
    return replace(figures, bins=dict(zip(keys.tolist(), sums.tolist(), strict=True)))


def _of_bits(values: npt.NDArray[np.float64], voxels: npt.NDArray[np.int64]) -> Statistics:
    nans, infinite = np.isnan(values), np.isinf(values)
    kept = np.flatnonzero(~nans & ~infinite)
    order = kept[np.argsort(values[kept])]
    counted = of_values(values[order], voxels[order])
    return replace(counted, nan_count=int(voxels[nans].sum()), inf_count=int(voxels[infinite].sum()))


_NUMBERS, _PLACES = types.Array(float64, 1, "C"), types.Array(uint16, 1, "C")
_BLOCK = uint64(2048)
"""Voxels at once: as float64 they take a third of the smallest near cache."""
_SUMS = uint64(8)
_SIGN, _SHIFT = uint64(1 << 63), uint64(48)
_ZERO, _ONE = uint64(0), uint64(1)


def count_channels(chunk: Volume) -> list[Counts]:
    """Return what the voxels of each channel are like; ``(C, ...)`` of any number type of up to 8 bytes."""
    voxels, dtype = np.ascontiguousarray(chunk), chunk.dtype
    if is_counted_by_value(dtype):
        return [Counts(dtype, found) for found in value_histograms(voxels)]
    return [_count(channel.reshape(-1)) for channel in voxels]


class _Room(threading.local):
    """What a thread needs beside its tables."""

    def __init__(self) -> None:
        self.block = np.empty(int(_BLOCK), np.float64)
        self.places = np.empty(int(_BLOCK), np.uint16)
        self.figures = np.empty(6, np.float64)


_room = _Room()


def _count(flat: Volume) -> Counts:
    kernel = _kernel(flat.dtype)
    different = kernel(flat, _room.block, _room.places, TABLES.counts, TABLES.found, _room.figures)
    nans, infinite, low, high, mean, deviations = _room.figures.tolist()
    finite = flat.size - int(nans) - int(infinite)
    figures = Statistics(finite, int(nans), int(infinite), low, high, mean, deviations)
    return Counts(flat.dtype, TABLES.found[:, :different].copy(), figures)


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
        count_keys(tables, places, held)
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
    return gather(tables, found, uint64(BINS - 1))


@cache
def _kernel(dtype: np.dtype[Any]) -> Callable[..., int]:
    """Return `_measure` for numbers of a type; takes a second the first time on a machine."""
    flat = types.Array(from_dtype(dtype), 1, "C")
    kernel: Callable[..., int] = compiled(flat, _NUMBERS, _PLACES, TABLE, TABLE, _NUMBERS, returns=int64)(_measure)
    return kernel
