"""Counts: the statistics of a chunk's voxels, channel by channel, counted without the interpreter lock.

Numbers of up to two bytes are counted value by value. Others are measured by ``core/compute/statistics.c``: they pass
block by block through the nearest cache, as float64; sums are of eight numbers that are eight apart, added up in one
order, so they are the same on any machine.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.catalog.statistics import Statistics, of_values
from voxload.convert.encode.histogram import TABLES, channels_of, value_histograms
from voxload.core.library import function
from voxload.errors import InternalError
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

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


_KINDS = ("i4", "i8", "u4", "u8", "f4", "f8")
"""Types of numbers that are counted in bins: ``enum number``."""
_measure = function("measure_numbers", "pnnppp", "n")


def count_channels(chunk: Volume) -> list[Counts]:
    """Return what the voxels of each channel are like; ``(C, ...)`` of any number type of up to 8 bytes."""
    voxels, dtype = np.ascontiguousarray(chunk), chunk.dtype
    if is_counted_by_value(dtype):
        return [Counts(dtype, found) for found in value_histograms(voxels)]
    if not dtype.isnative or dtype.str[1:] not in _KINDS:
        raise InternalError("statistics", found=str(dtype), expected=f"one of {', '.join(_KINDS)} in native byte order")
    number = _KINDS.index(dtype.str[1:])
    return [_count(dtype, number, at, size) for at, size in channels_of(voxels)]


class _Room(threading.local):
    """What a thread needs beside its tables; where it lies."""

    def __init__(self) -> None:
        self.figures = np.empty(6, np.float64)
        self.place = address(self.figures)


_room = _Room()


def _count(dtype: np.dtype[Any], number: int, at: int, size: int) -> Counts:
    different = _measure(at, size, number, *TABLES.places, _room.place)
    nans, infinite, low, high, mean, deviations = _room.figures.tolist()
    finite = size - int(nans) - int(infinite)
    figures = Statistics(finite, int(nans), int(infinite), low, high, mean, deviations)
    return Counts(dtype, TABLES.found[:, :different].copy(), figures)
