"""Histograms: how often each value of at most two bytes occurs among voxels.

Counted in tables, without the interpreter lock.

Tallying: how often each value occurs among voxels of at most two bytes, without the interpreter lock. Most voxels of
counts and labels are small: four neighbours below 16 are one key of two bytes, and counted at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int64, types, uint32, uint64

from voxload.catalog.statistics import BINS
from voxload.readers.compiling import compiled, part
from voxload.readers.pasting.intrinsics import load1, load2, load4, load8
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

LANES = 4
"""Tables that take turns: an increment need not wait for that of an equal neighbour."""
_APART = 80
"""Places by which equal keys of two tables are not a power of two apart: they would push each other out of caches."""
_RUN = 64
"""Keys that are looked at together: most are of none that occur."""
TABLE: Any = types.Array(uint32, 2, "C")
_U0, _U1 = uint64(0), uint64(1)


class Tables(threading.local):
    """A thread's tables, all zero between calls, and room for what is found in them."""

    def __init__(self) -> None:
        self.counts = np.zeros((LANES, BINS + _APART), np.uint32)
        self.found = np.empty((2, BINS), np.uint32)


TABLES = Tables()


@part
def count_keys(counts: Any, keys: Any, size: Any) -> None:
    """Count the first keys of an array."""
    whole = size // uint64(LANES) * uint64(LANES)
    for place in range(_U0, whole, uint64(LANES)):
        counts[0, keys[place]] += uint32(1)
        counts[1, keys[place + _U1]] += uint32(1)
        counts[2, keys[place + uint64(2)]] += uint32(1)
        counts[3, keys[place + uint64(3)]] += uint32(1)
    for place in range(whole, size):
        counts[0, keys[place]] += uint32(1)


@part
def gather(counts: Any, found: Any, last: Any) -> Any:
    """List the keys up to `last` whose sums are not zero, and the sums; zero the tables; return how many."""
    different, run = _U0, uint64(_RUN)
    for begin in range(_U0, last + _U1, run):
        union = uint32(0)
        for key in range(begin, begin + run):
            union |= counts[0, key] | counts[1, key] | counts[2, key] | counts[3, key]
        if union:
            for key in range(begin, begin + run):
                count = counts[0, key] + counts[1, key] + counts[2, key] + counts[3, key]
                if count:
                    found[0, different], found[1, different] = key, count
                    different += _U1
                    counts[0, key] = counts[1, key] = counts[2, key] = counts[3, key] = 0
    return int64(different)


_BITS = uint64(4)
"""Bits of a voxel that is counted with its neighbours."""
_SMALL = uint64(15)
_SIDE = 1 << 8
"""Different pairs of such voxels."""
_ZERO, _ONE, _GROUP = uint64(0), uint64(1), uint64(4)


class _Groups(threading.local):
    """A thread's table of groups, by their two pairs; all zero between calls."""

    def __init__(self) -> None:
        self.counts = np.zeros(_SIDE * _SIDE, np.uint32)
        self.pairs = np.zeros(_SIDE, np.uint32)


_groups = _Groups()


def value_histograms(voxels: Volume) -> list[npt.NDArray[np.uint32]]:
    """Return what occurs in each channel of contiguous ``(C, ...)`` voxels of one or two bytes.

    Each array is ``(2, n)``: values as the bits of unsigned integers, ascending, and how often they occur.
    """
    kernel = _kernel(voxels.itemsize)
    size = prod(voxels.shape[1:])
    groups, pairs, counts, found = _groups.counts, _groups.pairs, TABLES.counts, TABLES.found
    at, told = address(voxels), []
    for _ in voxels:
        different = kernel(at, size, groups, pairs, counts, found)
        at += size * voxels.itemsize
        told.append(found[:, :different].copy())
    return told


@part
def _part_groups(groups: Any, pairs: Any, counts: Any, most: Any) -> None:
    """Count the voxels of each group, whose bits are in `most`, and zero the groups."""
    reach = (most | most << _BITS) + _ONE
    for row in range(reach):
        begin, total = row * uint64(_SIDE), uint32(0)
        for column in range(reach):
            count = groups[begin + column]
            pairs[column] += count
            total += count
            groups[begin + column] = 0
        pairs[row] += total
    for pair in range(reach):
        counts[0, pair & _SMALL] += pairs[pair]
        counts[1, pair >> _BITS] += pairs[pair]
        pairs[pair] = 0


@part
def _key(word: Any, bits: Any) -> Any:
    """Return the number of a group whose voxels are `bits` apart and small."""
    if bits == uint64(16):
        # The factor brings all four into the highest two bytes; nothing else gets there, and nothing is carried.
        return word * uint64(1 << 48 | 1 << 36 | 1 << 24 | 1 << 12) >> uint64(48)
    two = (word | word >> _BITS) & uint64(0xFF00FF)
    return (two | two >> uint64(8)) & uint64(0xFFFF)


def _tallying(size: int) -> Callable[..., Any]:
    """Return the kernel for voxels of so many bytes, which it knows when it is compiled."""
    width = uint64(size)
    bits = uint64(8 * size)
    single = uint64((1 << 8 * size) - 1)
    large = uint64(sum(((1 << 8 * size) - 1 & ~int(_SMALL)) << 8 * size * place for place in range(int(_GROUP))))

    def tally_(at: Any, voxels: Any, groups: Any, pairs: Any, counts: Any, found: Any) -> Any:
        """List the values that occur, ascending, and how often; return how many there are; leave the tables zero.

        `at` is the first voxel's address.
        """
        union = _ZERO
        for _ in range(voxels // _GROUP):
            word = load4(at) if width == _ONE else load8(at)
            at += _GROUP * width
            if word & large:
                union |= word
                counts[0, word & single] += uint32(1)
                counts[1, word >> bits & single] += uint32(1)
                counts[2, word >> uint64(2) * bits & single] += uint32(1)
                counts[3, word >> uint64(3) * bits] += uint32(1)
            else:
                groups[_key(word, bits)] += uint32(1)
        union |= union >> uint64(2) * bits
        union = (union | union >> bits) & single
        _part_groups(groups, pairs, counts, _SMALL)
        for _ in range(voxels % _GROUP):
            value = load1(at) if width == _ONE else load2(at)
            at += width
            union |= value
            counts[0, value] += uint32(1)
        return gather(counts, found, union | _SMALL)

    return tally_


_COUNTS: Any = types.Array(uint32, 1, "C")


@cache
def _kernel(size: int) -> Callable[..., int]:
    """Return the kernel for voxels of so many bytes, 1 or 2; takes a second the first time on a machine."""
    kernel: Callable[..., int] = compiled(uint64, uint64, _COUNTS, _COUNTS, TABLE, TABLE, returns=int64)(
        _tallying(size)
    )
    return kernel
