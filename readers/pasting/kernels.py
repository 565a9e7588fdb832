"""Kernels: the one pass that takes voxels from decoded chunks to where they belong, in C.

A plan is a table of uint64 with one row for each part of a chunk that is wanted somewhere; the constants below name
its columns. All strides and places count bytes. Callers have checked every bound. ``readers/core/paste.c`` is the
code; it holds no interpreter lock and knows bits only: a voxel is so many bytes, whatever its type.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from voxload.readers._core import paste as paste
from voxload.readers._core import paste_mapped as paste_mapped
from voxload.readers._core import tabulate as tabulate

AXES = 4
EXTENT, SOURCE_STRIDE, TARGET_STRIDE = 0, AXES, 2 * AXES
"""First of four columns each: how many elements, and how far apart; the axis that is contiguous in the target last."""
FIRST, STOP = 12, 13
"""Bytes from the chunk's start to the first wanted element, and behind the last one."""
TARGET = 14
"""Address of the first element in memory."""
MANNER = 15
"""How it is copied: one of the next three."""
BY_ELEMENT, BY_RUN, BY_LINE = 0, 1, 2
PLACE = 16
"""First of four columns: the chunk's place in the grid."""
CHUNK = 20
"""Number of the chunk, counted along the grid."""
BOX = 21
"""Number of the box that wants it."""
COLUMNS = 22
LINE = 64
"""Bytes of a cache line; where a processor has longer ones, streaming gains less and is no less correct."""

Table = npt.NDArray[np.uint64]
"""One row a part."""
