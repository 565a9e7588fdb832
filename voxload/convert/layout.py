"""Layout: chunk and shard extents of a converted volume. Pure integers: no file, no array.

Chunks are what a reader decodes at least; shards are files. Chunks are chosen so that each rank of a grid touches as
few voxels as possible beside its block and halo. Shards are whole chunks and, where sizes allow, whole blocks, and as
large as a parallel file system likes its files.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from voxload.convert.chunk_advice import advise
from voxload.errors import UsageError
from voxload.geometry import Boundary, Halo
from voxload.grid import ProcessGrid

Extents = tuple[int, int, int]
"""Extents (d, h, w)."""

CHUNK_EXTENT = 64
"""Voxels per axis of a chunk, about, where no grid is named: a chunk of one int16 channel is 512 KiB."""
CHUNK_BYTES = 2 * 2**20
"""Largest chunk with several channels; beyond it channels get chunks of their own."""
FILE_BYTES = (64 * 2**20, 512 * 2**20)
"""Least and most bytes of a file: smaller ones burden a metadata server, larger ones one storage target."""
FILE_AIM = 160 * 2**20
"""Bytes of a file that are aimed at: what is stored may be 2.5 times less, or 3.2 times more, than was estimated."""

_SMALLEST_CHUNK = 8
_LARGEST_CHUNK_BYTES = 2**31 - 1
"""Limit of blosc, and below HDF5's own of 4 GiB."""
_MOST_SHARDS = 4096
"""Shards along one axis: a folder of them is still listed in a moment."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Who will read a volume."""

    spatial: Extents
    """Blocks along (d, h, w)."""
    halo: Halo
    """Voxels that each rank reads around its block."""
    boundary: Boundary = Boundary.ZERO
    """What lies outside a sample."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a layout is asked for; the defaults suit a (2, 2, 2) grid without halo."""

    chunks: Extents | None = None
    """Chunk extents of the caller's own choice."""
    readers: Readers | None = None
    """Who will read."""
    window: Extents | None = None
    """Extents of the samples in the volume, of which chunks must be divisors; None where the volume is one sample."""
    file_bytes: int = FILE_AIM
    """Decoded bytes of a shard that are aimed at."""


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
    def grid(self) -> tuple[int, int, int, int]:
        """Chunks along each axis."""
        c, d, h, w = (-(-extent // width) for extent, width in zip(self.shape, self.chunks, strict=True))
        return c, d, h, w


@lru_cache(maxsize=64)  # thousands of equal cubes are planned one by one
def plan_layout(
    shape: tuple[int, int, int, int], itemsize: int, *, is_sharded: bool, wishes: Wishes | None = None
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
    wishes
        What is asked for.

    Raises
    ------
    UsageError
        When the caller's chunks are larger than the volume, or than a codec can take, or do not fit its samples, or
        the grid of readers is finer than the volume.

    >>> plan_layout((4, 512, 512, 512), 2, is_sharded=True).chunks
    (4, 64, 64, 64)
    >>> readers = Readers((2, 2, 2), Halo.parse(1))
    >>> plan_layout((4, 512, 512, 512), 2, is_sharded=True, wishes=Wishes(readers=readers)).chunks
    (4, 19, 19, 26)
    """
    wishes = wishes or Wishes()
    d, h, w = _chunk_extents(shape, itemsize, wishes)
    channels = max(
        count
        for count in range(1, shape[0] + 1)
        if shape[0] % count == 0 and (count == 1 or count * d * h * w * itemsize <= CHUNK_BYTES)
    )
    chunks = (channels, d, h, w)
    return Layout(shape, chunks, _shard_extents(shape, itemsize, chunks, wishes) if is_sharded else None)


def _chunk_extents(shape: tuple[int, int, int, int], itemsize: int, wishes: Wishes) -> Extents:
    spatial = wishes.window or shape[1:]
    if wishes.chunks is not None:
        _check_chunks(wishes.chunks, spatial, itemsize, is_window=wishes.window is not None)
        return wishes.chunks
    if wishes.readers is not None:
        grid = ProcessGrid(spatial=wishes.readers.spatial, world_size=prod(wishes.readers.spatial), rank=0)
        return advise(
            (shape[0], *spatial),
            itemsize,
            grid=grid,
            halo=wishes.readers.halo,
            boundary=wishes.readers.boundary,
            even=wishes.window is not None,
        ).chunks
    d, h, w = (_chunk_extent(extent, is_divisor=wishes.window is not None) for extent in spatial)
    return d, h, w


def _check_chunks(chunks: Extents, spatial: Extents, itemsize: int, *, is_window: bool) -> None:
    found = ",".join(map(str, chunks))
    within = ",".join(map(str, spatial))
    if any(width > extent for width, extent in zip(chunks, spatial, strict=True)):
        raise UsageError("--chunks", found=found, expected=f"extents up to the volume's, {within}")
    if is_window and any(extent % width for width, extent in zip(chunks, spatial, strict=True)):
        raise UsageError("--chunks", found=found, expected=f"divisors of the samples' extents, {within}")
    if prod(chunks) * itemsize > _LARGEST_CHUNK_BYTES:
        raise UsageError(
            "--chunks",
            found=f"{found}, {prod(chunks) * itemsize} bytes a chunk",
            expected=f"at most {_LARGEST_CHUNK_BYTES}",
        )


def _chunk_extent(extent: int, *, is_divisor: bool) -> int:
    """Return the chunk extent for an axis: a divisor of its half near 64, so that halves are whole chunks.

    >>> [_chunk_extent(extent, is_divisor=False) for extent in (512, 128, 100, 32, 97, 254, 5)]
    [64, 64, 50, 16, 48, 64, 5]
    >>> [_chunk_extent(extent, is_divisor=True) for extent in (512, 100, 32, 97, 254, 5)]
    [64, 50, 16, 97, 127, 5]
    """
    half = extent // 2
    if half < _SMALLEST_CHUNK:
        return extent
    if is_divisor:
        whole = extent if extent % 2 else half
        widths = [width for width in range(_SMALLEST_CHUNK, whole + 1) if whole % width == 0]
        return min(widths, key=lambda width: (abs(math.log(width / CHUNK_EXTENT)), width))
    if half < CHUNK_EXTENT:
        return half
    near = range(CHUNK_EXTENT // 2, CHUNK_EXTENT + CHUNK_EXTENT // 2 + 1)
    divisors = [width for width in near if half % width == 0]
    return min(divisors, key=lambda width: abs(width - CHUNK_EXTENT), default=CHUNK_EXTENT)


def _shard_extents(
    shape: tuple[int, int, int, int], itemsize: int, chunks: tuple[int, int, int, int], wishes: Wishes
) -> tuple[int, int, int, int]:
    """Return shard extents: of those near the size that is aimed at, the one that fits the readers' blocks best."""
    grid = [-(-extent // width) for extent, width in zip(shape[1:], chunks[1:], strict=True)]
    blocks = wishes.readers.spatial if wishes.readers is not None else (2, 2, 2)
    chunk_bytes = shape[0] * prod(chunks[1:]) * itemsize
    if prod(grid) * chunk_bytes <= wishes.file_bytes:
        d, h, w = (count * width for count, width in zip(grid, chunks[1:], strict=True))
        return shape[0], d, h, w
    options = [_cuts(count) for count in grid]

    def cost(widths: tuple[int, ...]) -> tuple[int, int, float, float]:
        counts = [-(-count // width) for count, width in zip(grid, widths, strict=True)]
        away = abs(math.log2(prod(widths) * chunk_bytes / wishes.file_bytes))
        # How often a block's border would cut a shard; fewer than one shard a block is no cut.
        cuts = sum(bool(block % n and n % block) for block, n in zip(blocks, counts, strict=True))
        extents = [width * chunk for width, chunk in zip(widths, chunks[1:], strict=True)]
        return round(away), cuts, max(extents) / min(extents), away

    best = min((widths for widths in itertools.product(*options)), key=cost)
    d, h, w = (count * width for count, width in zip(best, chunks[1:], strict=True))
    return shape[0], d, h, w


def _cuts(count: int) -> list[int]:
    """Return widths, in chunks, of nearly equal parts of an axis of so many chunks, one for each number of parts."""
    parts = {min(count, round(2 ** (step / 2))) for step in range(2 * _MOST_SHARDS.bit_length())}
    return sorted({-(-count // part) for part in parts})
