"""Chunk advice: the chunk shape that costs a grid of ranks least; pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from voxload.geometry import Boundary, Box, Halo, chunks_touched, pieces
from voxload.grid import ProcessGrid

LEAST_CHUNK, MOST_CHUNK = 9 * 2**13, 2**22
"""Decoded bytes of a chunk: below, requests and Python cost more than bytes; above, threads run out of chunks."""


_PARTS = range(1, 65)
"""Parts that a block is cut into per axis."""
_NARROWEST = 4
"""Fewest voxels of a part."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A chunk shape, and what it would cost."""

    chunks: tuple[int, int, int]
    """Extents (d, h, w) of a chunk; all channels lie in one."""
    decode_amplification: float
    """Bytes decoded over bytes of the blocks with halo, over all ranks."""


def advise(
    shape: Sequence[int], itemsize: int, *, grid: ProcessGrid, halo: Halo, boundary: Boundary, even: bool = False
) -> Advice:
    """Return the chunk shape with the least decoding for every rank of a sample group.

    Extents are tried that cut the widest block into equal parts, up to 64 per axis. Of equal ones the most compact
    chunk wins, and then the largest: fewer requests. A chunk that serves several parts of a periodic box counts for
    each, as it is read.

    Parameters
    ----------
    shape
        Extents (C, D, H, W) of the volume.
    itemsize
        Bytes of a voxel and channel.
    grid, halo, boundary
        What each rank reads.
    even
        Whether only extents will do that divide those of the volume, as of samples that share a file.

    Raises
    ------
    UsageError
        When the grid does not fit the volume.
    """
    spatial = tuple(shape[1:])
    axes = zip(grid.bounds(spatial), halo.low, halo.high, spatial, strict=True)
    per_axis = [_axis(bounds, (low, high), extent, boundary=boundary, even=even) for bounds, low, high, extent in axes]
    found = []
    for choice in itertools.product(*per_axis):
        extents, amplifications = zip(*choice, strict=True)
        size = shape[0] * prod(extents) * itemsize
        distance = max(LEAST_CHUNK / size, size / MOST_CHUNK, 1.0)
        # Bits are shuffled eight elements at a time, and of other counts not at all (c-blosc).
        is_ragged = bool(shape[0] * prod(extents) % 8)
        amplification, elongation = round(prod(amplifications), 2), max(extents) / min(extents)
        found.append((distance, is_ragged, amplification, elongation, -size, extents, amplifications))
    *_, (depth, height, width), amplifications = min(found)
    amplification = prod(amplifications)
    return Advice((depth, height, width), amplification)


def _axis(
    bounds: Sequence[int], halo: tuple[int, int], extent: int, *, boundary: Boundary, even: bool
) -> list[tuple[int, float]]:
    """Return chunk widths for one axis with what they cost: the cost of a box is the product over its axes."""
    spans = [Box((lo - halo[0],), (hi + halo[1],)) for lo, hi in itertools.pairwise(bounds)]
    runs = [part.source for span in spans for part in pieces(span, (extent,), boundary)]
    needed = sum(span.size for span in spans)
    widest = max(hi - lo for lo, hi in itertools.pairwise(bounds))
    widths = {-(-widest // parts) for parts in _PARTS if parts == 1 or widest // parts >= _NARROWEST}
    if even:
        widths = {width for width in range(1, extent + 1) if extent % width == 0 and width >= min(_NARROWEST, extent)}
    return [(width, sum(chunks_touched(run, (width,)).size for run in runs) * width / needed) for width in widths]
