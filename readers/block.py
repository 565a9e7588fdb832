"""read_block: a block with its halo, whatever lies outside the sample."""

from __future__ import annotations

from voxload.geometry import Boundary, Box, pieces
from voxload.readers.protocol import ReadCost, Reader, Volume


def read_block(reader: Reader, box: Box, out: Volume, *, boundary: Boundary) -> None:
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
    """
    spatial = reader.describe().spatial
    parts = pieces(box, spatial, boundary)
    if sum(part.source.size for part in parts) < box.size:
        out[...] = 0
    for part in parts:
        reader.read_into(part.source, out[(slice(None), *part.target.slices)])


def block_cost(reader: Reader, box: Box, *, boundary: Boundary) -> ReadCost:
    """Return what `read_block` asks of the storage; a chunk that serves two pieces counts twice."""
    total = ReadCost()
    for part in pieces(box, reader.describe().spatial, boundary):
        total += reader.cost(part.source)
    return total
