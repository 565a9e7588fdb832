"""Parts: which part of which chunk goes where, for all boxes of a read, as the table that the kernels follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.pasting.kernels import AXES, CHUNK, COLUMNS, FIRST, LINE, PLACE, STOP, Table, tabulate
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

Place = tuple[int, ...]
"""Coordinates of a chunk in the grid of chunks, in stored axis order."""

_WIDTHS = (1, 2, 4, 8)
_STREAMED_BYTES = 2**23
"""Arrays from this size on are written past the caches: a smaller one may still be there when it is used."""


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """How the elements of every chunk lie in its decoded bytes."""

    extents: tuple[int, ...]
    """Of a chunk, in stored axis order."""
    strides: tuple[int, ...]
    """Elements between neighbours, in stored axis order."""
    dtype: np.dtype[Any]
    """Type of the elements, in this machine's byte order; of 1, 2, 4 or 8 bytes."""
    is_swapped: bool
    """Whether the bytes of each element stand in the other order than this machine's."""

    @classmethod
    def of(cls, extents: tuple[int, ...], dtype: np.dtype[Any], *, turned: tuple[int, ...] | None = None) -> ChunkShape:
        """Return the shape of chunks in C order, or with their axes stored in the order `turned`."""
        order = turned or tuple(range(len(extents)))
        strides = [0] * len(extents)
        step = 1
        for axis in reversed(order):
            strides[axis] = step
            step *= extents[axis]
        return cls(extents, tuple(strides), dtype.newbyteorder("="), not dtype.isnative)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Wanted:
    """A box and the array that it fills."""

    box: Box
    """In stored axis order."""
    view: Volume
    """The caller's array with its axes in stored order, for which `fits` holds."""


def fits(view: Volume) -> bool:
    """Tell whether the kernels can write into `view` as it is."""
    width = view.itemsize
    flags = view.flags
    return width in _WIDTHS and view.size > 0 and flags.aligned and flags.writeable and min(view.strides) >= 0


@dataclass(frozen=True, slots=True)
class Parts:
    """The plan of a read: all parts of one chunk stand together."""

    table: Table
    """One row a part."""
    bounds: list[int]
    """Where the rows of each chunk begin, and behind them the number of rows."""
    places: list[Place]
    """Each chunk's place in the grid."""
    spans: list[tuple[int, int]]
    """Where in a chunk's bytes those that are wanted begin and end."""


def plan_parts(shape: ChunkShape, wanted: Sequence[Wanted]) -> Parts:
    """Plan a read of boxes that are not empty; pure, but for the addresses of their arrays.

    Raises
    ------
    UsageError
        When an array has another shape than its box, or strides that the kernels cannot follow.
    """
    pad = AXES - len(shape.extents)
    extents = (1,) * pad + shape.extents
    numbers: list[list[int]] = []
    rows = 0
    ends = [1] * AXES
    for one in wanted:
        box, view = one.box, one.view
        if view.shape != box.shape or not fits(view):
            raise UsageError("view", found=f"{view.shape}, strides {view.strides}", expected=f"{box.shape}, aligned")
        start, stop = (0,) * pad + box.start, (1,) * pad + box.stop
        numbers.append(numbers_of(start, stop, view, shape))
        rows += prod([-(-hi // n) - lo // n for lo, hi, n in zip(start, stop, extents, strict=True)])
        ends = [max(pair) for pair in zip(ends, stop, strict=True)]
    strides = [0] * pad + [stride * shape.itemsize for stride in shape.strides]
    grid = [-(-stop // extent) for stop, extent in zip(ends, extents, strict=True)]
    table: Table = np.empty((rows, COLUMNS), np.uint64)
    chunk = np.array([*extents, *strides, *grid], np.uint64)
    tabulate(table, np.array(numbers, np.uint64), chunk, shape.itemsize)
    columns = slice(PLACE + pad, PLACE + AXES)
    if len(wanted) == 1:
        spans = zip(table[:, FIRST].tolist(), table[:, STOP].tolist(), strict=True)
        return Parts(table, list(range(rows + 1)), list(map(tuple, table[:, columns].tolist())), list(spans))
    table = table[np.argsort(table[:, CHUNK], kind="stable")]
    chunks = table[:, CHUNK]
    starts = np.append(0, np.flatnonzero(chunks[1:] != chunks[:-1]) + 1)
    first = np.minimum.reduceat(table[:, FIRST], starts).tolist()
    last = np.maximum.reduceat(table[:, STOP], starts).tolist()
    places = list(map(tuple, table[starts, columns].tolist()))
    return Parts(table, [*starts.tolist(), rows], places, list(zip(first, last, strict=True)))


def numbers_of(start: Place, stop: Place, view: Volume, shape: ChunkShape) -> list[int]:
    """Return a box's row for `tabulate`."""
    pad = AXES - view.ndim
    steps = (0,) * pad + view.strides
    # The axis that is contiguous in the target goes last: there the kernels copy runs.
    order = sorted(range(AXES), key=lambda axis: -steps[axis] if axis >= pad else -(2**64))
    origin = address(view)
    last = order[-1]
    # Before it stands the axis that is contiguous in the source: of interleaved channels each line is read once.
    nearest = min(order[pad:], key=lambda axis: shape.strides[axis - pad])
    if nearest != last:
        order.remove(nearest)
        order.insert(-1, nearest)
    is_streamed = (
        view.nbytes >= _STREAMED_BYTES
        and origin % LINE == 0
        and steps[last] == shape.strides[last - pad] * shape.itemsize == shape.itemsize
        and all(steps[axis] % LINE == 0 for axis in order[pad:-1])
    )
    return [*start, *stop, *steps, origin, *order, is_streamed]
