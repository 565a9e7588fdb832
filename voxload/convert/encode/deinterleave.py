"""Deinterleaving: channels that alternate in memory, copied into a row for each, a line of the cache at a time.

A voxel's channels are one after the other in most raw cubes and far apart in a chunk. Copied one by one they take as
long as compressing does; as vectors that are zipped, little longer than any copy. ``core/paste/deinterleave.c`` is the
code.
"""

from __future__ import annotations

from operator import add, gt, mul

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.errors import InternalError
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

MOST_CHANNELS = 8
"""Beyond, vectors no longer fit the registers of a processor."""
ROWS = 18
"""Place in a plan of the first channel's row; those of the other channels follow."""
_VOXELS = 1
"""Place of the voxels' address."""
_WIDTHS = (1, 2, 4, 8)
"""Bytes of a voxel."""

_part_channels = function("part_channels", "pnn")


def can_deinterleave(chunk: Volume, voxels: Volume) -> bool:
    """Tell whether `deinterleave_channels` takes voxels: channels next to each other, rows of a chunk contiguous."""
    width = voxels.itemsize
    channels = len(voxels)
    return (
        width in _WIDTHS
        and chunk.dtype == voxels.dtype
        and 1 < channels <= MOST_CHANNELS
        and voxels.strides[0] == width
        and voxels.strides[3] == channels * width
        and chunk.strides[3] == width
        and min(voxels.strides) > 0
        and min(chunk.strides) > 0
    )


def deinterleave_channels(chunk: Volume, voxels: Volume) -> None:
    """Copy ``(C, d, h, w)`` voxels that `can_deinterleave` accepts; safe to call from many threads at once."""
    deinterleave_into_chunks(chunk[np.newaxis, np.newaxis, np.newaxis, np.newaxis], voxels, (0, 0, 0))


def deinterleave_into_chunks(chunks: Volume, voxels: Volume, start: tuple[int, int, int]) -> None:
    """Copy voxels to their places in chunks, all of one call in a row along w; safe to call from many threads at once.

    Parameters
    ----------
    chunks
        ``(groups, chunks along d, h and w, channels of a group, d, h, w)`` of one chunk, rows of voxels contiguous.
    voxels
        ``(C, d, h, w)`` with the channels of all groups next to each other in memory, or with contiguous rows.
    start
        Where the first voxel belongs: along w at the begin of a chunk.

    Raises
    ------
    InternalError
        For arrays that are not so, or voxels that no chunk has room for.
    """
    if not voxels.size:
        return
    plan, channels, width = plan_deinterleaving(chunks, voxels, start), len(voxels), voxels.itemsize
    at = address(plan)
    if alternates(voxels):
        _part_channels(at, channels, width)
        return
    rows, apart = plan[ROWS:].tolist(), voxels.strides[0]
    for row in rows:
        plan[ROWS] = row
        _part_channels(at, 1, width)
        plan[_VOXELS] += apart


def alternates(voxels: Volume) -> bool:
    """Tell whether the channels of ``(C, d, h, w)`` voxels are next to each other; of a single one, if rows are."""
    return voxels.strides[3] == len(voxels) * voxels.itemsize and (
        len(voxels) == 1 or voxels.strides[0] == voxels.itemsize
    )


def plan_deinterleaving(chunks: Volume, voxels: Volume, start: tuple[int, int, int]) -> npt.NDArray[np.int64]:
    """Return the numbers that the core takes, ``struct band``; parameters are those of `deinterleave_into_chunks`.

    Raises InternalError as that does.
    """
    _check(chunks, voxels, start)
    shape, strides = chunks.shape, chunks.strides
    rows = [channel // shape[4] * strides[0] + channel % shape[4] * strides[4] for channel in range(len(voxels))]
    numbers = (address(chunks), address(voxels), *voxels.shape[1:], *shape[5:], *start, *strides[1:4], *strides[5:7])
    return np.array((*numbers, *voxels.strides[1:3], *rows), np.int64)


def _check(chunks: Volume, voxels: Volume, start: tuple[int, int, int]) -> None:
    """Refuse what the core would read or write elsewhere for: it follows the plan."""
    width, rooms = voxels.itemsize, (chunks.shape[0] * chunks.shape[4], *map(mul, chunks.shape[1:4], chunks.shape[5:]))
    ends = (len(voxels), *map(add, start, voxels.shape[1:]))
    if (
        not voxels.size
        or width not in _WIDTHS
        or chunks.dtype != voxels.dtype
        or not chunks.flags.writeable
        or min(start) < 0
        or any(map(gt, ends, rooms))
        or start[2] % chunks.shape[7]
        or (chunks.strides[7] != width and chunks.shape[7] > 1)
        or not (alternates(voxels) or voxels.strides[3] == width or voxels.shape[3] == 1)
    ):
        raise InternalError(
            "parting",
            found=f"{voxels.dtype} {voxels.shape} by {voxels.strides} at {start}, {chunks.dtype} {chunks.shape}",
            expected="voxels that the chunks have room for, in contiguous rows",
        )
