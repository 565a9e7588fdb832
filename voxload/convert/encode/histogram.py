"""Histograms: how often each value of at most two bytes occurs among voxels.

Counted in tables by ``core/compute/histogram.c``, without the interpreter lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from math import prod

import numpy as np
import numpy.typing as npt

from voxload.catalog.statistics import BINS
from voxload.core.library import function
from voxload.errors import InternalError
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

LANES = 4
"""Tables that take turns: an increment need not wait for that of an equal neighbour."""
_APART = 80
"""Places by which equal keys of two tables are not a power of two apart: they would push each other out of caches."""
_MOST = 2**32 - 1
"""Voxels of a channel that a table can count; a chunk has fewer bytes."""


class Tables(threading.local):
    """A thread's tables, all zero between calls, and room for what is found in them; where each lies."""

    def __init__(self) -> None:
        self.counts = np.zeros((LANES, BINS + _APART), np.uint32)
        self.found = np.empty((2, BINS), np.uint32)
        self.places = address(self.counts), address(self.found)


TABLES = Tables()


class _Groups(threading.local):
    """A thread's table of groups of four small values, all zero between calls; where it lies."""

    def __init__(self) -> None:
        self.counts = np.zeros(1 << 16, np.uint32)
        self.place = address(self.counts)


_groups = _Groups()
_count = function("count_small_numbers", "pnnppp", "n")


def value_histograms(voxels: Volume) -> list[npt.NDArray[np.uint32]]:
    """Return what occurs in each channel of contiguous ``(C, ...)`` voxels of one or two bytes.

    Each array is ``(2, n)``: values as the bits of unsigned integers, ascending, and how often they occur.
    """
    if voxels.itemsize not in (1, 2):
        raise InternalError("voxels that are counted by value", found=str(voxels.dtype), expected="one or two bytes")
    told = []
    for at, size in channels_of(voxels):
        different = _count(at, size, voxels.itemsize, _groups.place, *TABLES.places)
        told.append(TABLES.found[:, :different].copy())
    return told


def channels_of(voxels: Volume) -> Iterator[tuple[int, int]]:
    """Yield where each channel of contiguous voxels lies, and how many it has; refuse more than a table can count."""
    size = prod(voxels.shape[1:])
    if not voxels.flags.c_contiguous or size > _MOST:
        found, expected = f"{voxels.shape} of strides {voxels.strides}", f"contiguous, at most {_MOST} a channel"
        raise InternalError("voxels that are counted", found=found, expected=expected)
    first = address(voxels)
    for channel in range(voxels.shape[0]):
        yield first + channel * size * voxels.itemsize, size
