"""Blocked transpose: voxels as stored, copied into a view that is turned, in one pass that caches can follow.

A plain copy between arrays of other axis orders touches a cache line again for each of its voxels: up to thirty times
slower than reading. Here small squares are copied by way of buffers in the nearest cache, so each line is touched
once, even where lines lie a power of two apart and push each other out. Copies hold no interpreter lock, and the
process's team of threads shares them. ``core/paste/transpose.c`` is the code.
"""

from __future__ import annotations

import numpy as np

from voxload.core.library import function
from voxload.geometry import split
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address
from voxload.readers.team import team

_SIDE = 32
"""Voxels along a square."""
_SHARE_BYTES = 2**20
"""Copies are parted among threads into pieces of about this size."""
_WIDTHS = (1, 2, 4, 8)
"""Bytes of a voxel that the core knows."""

_turn_voxels = function("turn_voxels", "pn")


def copy_turned(target: Volume, source: Volume) -> None:
    """Copy ``(C, d, h, w)`` voxels into a writable view of the same shape and type, whatever its strides.

    Safe to call from many threads at once.
    """
    if not _can_turn(target, source):
        np.copyto(target, source)
        return
    rows, columns = _near(source), _near(target)
    order = (0, 6 - rows - columns, rows, columns)
    to, at = target.transpose(order), source.transpose(order)
    longest = max((1, 2), key=lambda axis: to.shape[axis])
    shares = max(1, min(to.nbytes // _SHARE_BYTES, -(-to.shape[longest] // _SIDE)))
    bounds = split(to.shape[longest], shares)

    def copy_share(number: int) -> None:
        share = (slice(None),) * longest + (slice(bounds[number], bounds[number + 1]),)
        mine, its = to[share], at[share]
        plan = np.array((address(mine), address(its), *mine.shape, *mine.strides, *its.strides), np.int64)
        _turn_voxels(address(plan), to.itemsize)

    if shares == 1:
        copy_share(0)
    else:
        team().run(copy_share, range(shares))


def _can_turn(target: Volume, source: Volume) -> bool:
    """Tell whether the core copies: same bytes, and rows of both that go along other axes."""
    width, rows, columns = target.itemsize, _near(source), _near(target)
    return (
        width in _WIDTHS
        and bool(target.size)
        and rows != columns
        and source.strides[rows] == width
        and abs(target.strides[columns]) == width
        # What the core does not look at: numpy says what is wrong, or knows what to do.
        and target.shape == source.shape
        and target.dtype == source.dtype
        and target.flags.writeable
        and not target.dtype.hasobject
        and not np.may_share_memory(target, source)
    )


def _near(volume: Volume) -> int:
    """Return the spatial axis along which voxels are next to each other."""
    return min((1, 2, 3), key=lambda axis: (volume.shape[axis] == 1, abs(volume.strides[axis])))
