"""read_block: a block with its halo, whatever lies outside the sample; and planes, for pictures."""

from __future__ import annotations

import numpy as np

from voxload.geometry import Boundary, Box, pieces
from voxload.readers.protocol import ReadCost, Reader, Volume, check_out
from voxload.readers.requests import Request, read_many


def read_block(reader: Reader, box: Box, out: Volume, *, boundary: str | Boundary) -> None:
    """Fill `out` with the voxels of `box`, which may reach outside the volume.

    Parameters
    ----------
    reader
        The volume's reader.
    box
        Spatial, in global indices; negative ones and ones beyond the extent follow `boundary`.
    out
        Shape ``(C, *box.shape)``, the reader's native dtype.
    boundary
        What lies outside: zeros, or the volume again.

    Raises
    ------
    UsageError
        When `out` does not fit; everything that the reader raises.
    """
    info = reader.describe()
    parts = pieces(box, info.spatial, boundary)
    check_out(info, box, out)
    if sum(part.source.size for part in parts) < box.size:
        out[...] = 0
    read_many(reader, [Request(part.source, out[(slice(None), *part.target.slices)]) for part in parts])


def block_cost(reader: Reader, box: Box, *, boundary: str | Boundary) -> ReadCost:
    """Return what `read_block` asks of the storage; a chunk that serves two pieces counts twice."""
    total = ReadCost()
    for part in pieces(box, reader.describe().spatial, boundary):
        total += reader.cost(part.source)
    return total


def read_plane(reader: Reader, axis: int, index: int) -> Volume:
    """Return the plane of channel 0 at `index` of spatial `axis`, two-dimensional; only its chunks are read."""
    info = reader.describe()
    start, stop = [0, 0, 0], list(info.spatial)
    start[axis], stop[axis] = index, index + 1
    box = Box(tuple(start), tuple(stop))
    out = np.empty((info.shape[0], *box.shape), info.native_dtype)
    reader.read_into(box, out)
    plane: Volume = out[0].squeeze(axis)
    return plane
