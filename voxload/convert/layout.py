"""Layout: chunk and shard extents of a converted cube. Pure integers: no file, no array.

Chunks are what a reader decodes at least; shards are files. Both are chosen so that a block of a (2, 2, 2)
grid is whole chunks, and of a large cube whole shards. A shard is thin along the axis that the source stores
slowest, so that a slab of whole planes, which the source holds in one piece, is whole shards too: every byte is
then read once, in order, and no shard is ever written in parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from voxload.errors import UsageError

CHUNK_EXTENT = 64
"""Voxels per axis of a chunk, about: a chunk of one int16 channel is 512 KiB."""
CHUNK_BYTES = 2 * 2**20
"""Largest chunk with several channels; beyond it channels get chunks of their own."""
SHARD_BYTES = 32 * 2**20
"""Largest shard, decoded, unless one chunk is larger: encoding one takes several times its size in memory."""

_SMALLEST_CHUNK = 8
_LARGEST_CHUNK_BYTES = 2**31 - 1
"""Limit of blosc, and below HDF5's own of 4 GiB."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a volume is cut in storage; every extent is in (C, D, H, W)."""

    shape: tuple[int, int, int, int]
    """Extents of the volume."""
    chunks: tuple[int, int, int, int]
    """Extents of a chunk."""
    shards: tuple[int, int, int, int] | None
    """Extents of a shard, whole chunks; None where all chunks share one file."""

    @property
    def unit(self) -> tuple[int, int, int]:
        """Spatial extents that are written at once, with all channels."""
        return (self.shards or self.chunks)[1:]


def plan_layout(
    shape: tuple[int, int, int, int],
    itemsize: int,
    *,
    is_sharded: bool,
    slowest_first: tuple[int, int, int] = (0, 1, 2),
    chunks: tuple[int, int, int] | None = None,
) -> Layout:
    """Choose chunks and shards for a volume.

    Parameters
    ----------
    shape
        Extents (C, D, H, W).
    itemsize
        Bytes of a voxel of one channel.
    is_sharded
        Whether several chunks share a file of their own.
    slowest_first
        Spatial axes in the order of the source's bytes.
    chunks
        The caller's chunk extents (d, h, w); None to choose.

    Raises
    ------
    UsageError
        When the caller's chunks are larger than the volume, or than a codec can take.

    >>> plan_layout((4, 512, 512, 512), 2, is_sharded=True).shards
    (4, 64, 256, 256)
    """
    spatial = shape[1:]
    d, h, w = chunks or tuple(_chunk_extent(extent) for extent in spatial)
    if any(width > extent for width, extent in zip((d, h, w), spatial, strict=True)):
        raise UsageError(
            "--chunks", found=f"{d},{h},{w}", expected=f"extents up to the volume's, {','.join(map(str, spatial))}"
        )
    if d * h * w * itemsize > _LARGEST_CHUNK_BYTES:
        raise UsageError(
            "--chunks",
            found=f"{d},{h},{w}, {d * h * w * itemsize} bytes a chunk",
            expected=f"at most {_LARGEST_CHUNK_BYTES}",
        )
    channels = max(
        count
        for count in range(1, shape[0] + 1)
        if shape[0] % count == 0 and (count == 1 or count * d * h * w * itemsize <= CHUNK_BYTES)
    )
    shards = _shard_extents(shape, itemsize, (d, h, w), slowest_first) if is_sharded else None
    return Layout(shape, (channels, d, h, w), shards)


def _chunk_extent(extent: int) -> int:
    """Return the chunk extent for an axis: a divisor of its half near 64, so that halves are whole chunks.

    >>> [_chunk_extent(extent) for extent in (512, 128, 100, 32, 97, 254, 5)]
    [64, 64, 50, 16, 48, 64, 5]
    """
    half = extent // 2
    if half < _SMALLEST_CHUNK:
        return extent
    if half < CHUNK_EXTENT:
        return half
    near = range(CHUNK_EXTENT // 2, CHUNK_EXTENT + CHUNK_EXTENT // 2 + 1)
    divisors = [width for width in near if half % width == 0]
    return min(divisors, key=lambda width: abs(width - CHUNK_EXTENT), default=CHUNK_EXTENT)


def _shard_extents(
    shape: tuple[int, int, int, int],
    itemsize: int,
    chunks: tuple[int, int, int],
    slowest_first: tuple[int, int, int],
) -> tuple[int, int, int, int]:
    """Return shard extents: the whole cube if it is small, else octants, else octants cut along the slowest axis."""
    counts = [-(-extent // width) for extent, width in zip(shape[1:], chunks, strict=True)]
    chunk_bytes = shape[0] * prod(chunks) * itemsize
    if prod(counts) * chunk_bytes > SHARD_BYTES:
        counts = [max(1, -(-(extent // 2) // width)) for extent, width in zip(shape[1:], chunks, strict=True)]
    while prod(counts) * chunk_bytes > SHARD_BYTES and max(counts) > 1:
        axis = next(axis for axis in slowest_first if counts[axis] > 1)
        # A divisor of the octant's count keeps the octant whole shards.
        counts[axis] = max(count for count in range(1, counts[axis]) if counts[axis] % count == 0)
    d, h, w = (count * width for count, width in zip(counts, chunks, strict=True))
    return shape[0], d, h, w
