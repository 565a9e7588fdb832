"""Kernels: the one pass that takes voxels from decoded chunks to where they belong, in C.

A plan is a table of uint64 with one row for each part of a chunk that is wanted somewhere; the constants below name
its columns. All strides and places count bytes. Callers have checked every bound. ``core/paste/paste.c`` is the code;
it holds no interpreter lock and knows bits only: a voxel is so many bytes, whatever its type.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.errors import InternalError
from voxload.readers.scratch import Bytes

AXES = 6
"""Sample, time step, channel, d, h, w; of an array with fewer axes the first ones are one long."""
EXTENT, SOURCE_STRIDE, TARGET_STRIDE = 0, AXES, 2 * AXES
"""First of a column an axis each: how many elements, and how far apart; what is contiguous in the target is last."""
FIRST, STOP = 3 * AXES, 3 * AXES + 1
"""Bytes from the chunk's start to the first wanted element, and behind the last one."""
TARGET = 3 * AXES + 2
"""Address of the first element in memory."""
MANNER = 3 * AXES + 3
"""How it is copied: one of the next three."""
BY_ELEMENT, BY_RUN, BY_LINE = 0, 1, 2
PLACE = 3 * AXES + 4
"""First of a column an axis: the chunk's place in the grid."""
CHUNK = 4 * AXES + 4
"""Number of the chunk, counted along the grid."""
BOX = 4 * AXES + 5
"""Number of the box that wants it."""
COLUMNS = 4 * AXES + 6
WANTED_TO, WANTED_MAY_STREAM = 3 * AXES, 4 * AXES + 1
"""Columns of ``struct wanted``: the address of a box's first element, and whether lines may go past the caches."""
LINE = 64
"""Bytes of a cache line; where a processor has longer ones, streaming gains less and is no less correct."""

Table = npt.NDArray[np.uint64]
"""One row a part."""


_tabulate = function("plan_boxes", "wnrnrn", "b")
_paste = function("paste_chunk", "rnrnnnbb")
_paste_mapped = function("paste_memory", "rnnnb")


def tabulate(table: Table, boxes: Table, grid: npt.NDArray[np.uint64], width: int) -> None:
    """Fill a table with the rows of some boxes, of elements of `width` bytes; raises InternalError for others."""
    if not _tabulate(table, len(table), boxes, len(boxes), grid, width):
        raise InternalError("plan", found=f"{len(table)} rows", expected="as many as the boxes need")


def check_span(table: Table, span: tuple[int, int]) -> tuple[int, int]:
    """Return a range of a table's rows; raises InternalError for one that is not in it."""
    if not 0 <= span[0] <= span[1] <= len(table):
        raise InternalError("plan", found=f"rows {span[0]} to {span[1]}", expected=f"of {len(table)}")
    return span


def paste(
    source: Bytes, table: Table, span: tuple[int, int], width: int, *, is_shuffled: bool, is_swapped: bool
) -> None:
    """Paste rows ``[begin, end)`` out of one decoded chunk."""
    _paste(source, source.size, table, *check_span(table, span), width, is_shuffled, is_swapped)


def paste_mapped(table: Table, span: tuple[int, int], width: int, *, is_swapped: bool) -> None:
    """Paste rows whose FIRST and STOP are addresses."""
    _paste_mapped(table, *check_span(table, span), width, is_swapped)
