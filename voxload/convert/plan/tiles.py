"""Tiling: a raw cube cut into tiles, which are read at once within the memory of a conversion, and these into chunks.

Pure integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from voxload.convert.layout import Layout
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.units import format_bytes

LIBRARY_BYTES = 304 * 2**20
"""Memory of the interpreter with its libraries while a conversion runs: up to 290 MiB measured, of which 132 to 187 are
pages of shared libraries, as many as the kernel maps at once, and room for small buffers."""
LEAST_JOB_BYTES, MOST_JOB_BYTES = 2**21, 2**23
"""Voxels that a thread is sent to encode, where memory allows. Sent one by one, chunks of 2 MiB take a twelfth more of
the processors' time than four at once, those of 256 KiB a tenth more than eight, and those of 108 KiB half as much
again: each time, a thread's instructions must come back into caches that voxels have passed through."""
WRITES = 2
"""Jobs whose compressed chunks are written at once."""
TILE_BYTES = 2**24
"""Largest tile of a source without chunks of its own: rows of it are long enough for any storage, and larger ones were
not converted faster."""
READ_AHEAD = 2
"""Tiles in memory: one is encoded while the next is read."""
_FLAT_AHEAD = 3
"""The same of a source without chunks, whose tiles are parted where they are read: with two, a reader that the system
puts off for a moment keeps those that encode waiting."""

_LIBRARIES = "the interpreter and its libraries"
DECODING, TABLE = "decoding the source's own chunks", "the table of the source's chunks"
"""Names of what takes memory, for messages."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one volume's conversion asks of memory."""

    spatial: tuple[int, int, int]
    """Extents (D, H, W) of each raw cube."""
    slowest_first: tuple[int, int, int]
    """Spatial axes in the order of the source's bytes."""
    scratch_bytes: int = 0
    """Memory that reading the source takes beside the tile and its table of chunks."""
    table_bytes: int = 0
    """Memory of the table of the source's chunks."""
    turned_bytes: int = 0
    """Memory that reading takes beside the tile for each voxel of it, all of its channels."""
    is_sequential: bool = False
    """Whether tiles must be whole planes of the slowest axis."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a conversion may take."""

    max_memory: int
    """Bytes in all."""
    workers: int = 1
    """Threads that encode."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """A raw cube cut into tiles, which are read at once, of whole chunks."""

    spatial: tuple[int, int, int]
    """Extents (D, H, W) of the cube."""
    chunk: tuple[int, int, int]
    """Extents of a chunk; chunks at the far border are filled up."""
    tile: tuple[int, int, int]
    """Extents of a tile, whole chunks."""
    slowest_first: tuple[int, int, int]
    """Spatial axes in the order of the source's bytes, which is the order of the tiles."""
    buffers: int
    """Tiles in memory at once."""
    projected: int
    """Bytes of memory that the conversion is projected to take."""
    job: int = 1
    """Chunks that a thread is sent to encode."""

    @property
    def largest_tile(self) -> int:
        """Voxels of the largest tile, of one channel."""
        return _held(list(self.tile), self.spatial)

    def tiles(self) -> Iterator[Box]:
        """Yield the tiles in the order in which the source stores them."""
        return parts_of(Box.whole(self.spatial), self.tile, self.slowest_first)

    def chunks(self, tile: Box) -> Iterator[Box]:
        """Yield the parts of a tile that are in one chunk each, in the order in which they are written."""
        return parts_of(tile, self.chunk, (0, 1, 2))


def plan_tiling(layout: Layout, itemsize: int, *, demand: Demand, budget: Budget) -> Tiling:
    """Choose the largest tile that keeps a conversion within its memory.

    A tile grows along the source's fastest axis first, and ends as a slab of whole planes, one chunk thick: growing
    further would make reads no more contiguous. Of a source without chunks it ends earlier, at `TILE_BYTES`.

    Raises
    ------
    UsageError
        When a tile of one chunk does not fit, or whole planes of a source that can only be read in order; the message
        gives projected and allowed bytes and the culprit.
    """
    spatial, chunk = demand.spatial, layout.chunks[1:]
    voxel, turned = layout.shape[0] * itemsize, demand.turned_bytes
    encoding = jobs_in_memory(budget.workers) * prod(layout.chunks) * itemsize
    fixed = {
        _LIBRARIES: LIBRARY_BYTES,
        DECODING: demand.scratch_bytes,
        TABLE: demand.table_bytes,
        f"encoding by {budget.workers} threads": encoding,
    }
    least = list(chunk)
    if demand.is_sequential:
        for axis in demand.slowest_first[1:]:
            least[axis] = -(-spatial[axis] // chunk[axis]) * chunk[axis]
    room = budget.max_memory - sum(fixed.values())
    is_flat = not demand.scratch_bytes and not demand.is_sequential
    ahead = _FLAT_AHEAD if is_flat else READ_AHEAD
    smallest = _held(least, spatial)
    buffers = next((count for count in range(ahead, 0, -1) if smallest * (count * voxel + turned) <= room), 0)
    if not buffers:
        _refuse({**fixed, "the voxels read at once": smallest * (voxel + turned)}, budget.max_memory)
    # A chunk of the source that reached beyond a tile would be decoded for each of the tiles that it is in.
    most = min(room, buffers * TILE_BYTES) if is_flat else room
    tile = least
    for axis in reversed(demand.slowest_first[1:]):
        across = _held(tile, spatial) // min(tile[axis], spatial[axis]) * (buffers * voxel + turned)
        whole = -(-spatial[axis] // chunk[axis])
        count = max(1, min(whole, most // (across * chunk[axis])))
        tile[axis] = max(tile[axis], count * chunk[axis])
        if tile[axis] < spatial[axis]:
            break
    read = _held(tile, spatial) * voxel
    projected = sum(fixed.values()) + buffers * read + _held(tile, spatial) * turned
    wanted = _job_bytes((buffers - 1) * read, budget.workers) // (prod(layout.chunks) * itemsize)
    job = max(1, min(wanted, 1 + (budget.max_memory - projected) // encoding))
    projected += (job - 1) * encoding
    return Tiling(spatial, chunk, (tile[0], tile[1], tile[2]), demand.slowest_first, buffers, projected, job)


def check_room(parts: Mapping[str, int], max_memory: int) -> None:
    """Refuse to look at a source whose `parts`, name to bytes, do not fit beside the interpreter.

    For what is done before there is a tiling; raises UsageError as `plan_tiling` does.
    """
    whole = {_LIBRARIES: LIBRARY_BYTES, **parts}
    if sum(whole.values()) > max_memory:
        _refuse(whole, max_memory)


def _job_bytes(held: int, threads: int) -> int:
    """Return what a thread is best sent of the tiles that are in memory: so much that each finds two jobs there."""
    return min(max(held // (2 * threads), LEAST_JOB_BYTES), MOST_JOB_BYTES)


def jobs_in_memory(threads: int) -> int:
    """Return how many jobs of chunks are in memory at once: packed and compressed in each thread, waiting, written."""
    return 2 * threads + (threads + 1) + WRITES


def _held(tile: list[int], spatial: tuple[int, int, int]) -> int:
    """Return the voxels of a tile that are in the cube."""
    return prod(min(width, extent) for width, extent in zip(tile, spatial, strict=True))


def _refuse(parts: dict[str, int], max_memory: int) -> None:
    projected = sum(parts.values())
    culprit = max(parts, key=lambda name: parts[name])
    raise UsageError(
        "memory of the conversion",
        found=f"{format_bytes(projected)} projected, {format_bytes(parts[culprit])} of it for {culprit}",
        expected=f"at most {format_bytes(max_memory)}",
        remedy=f"use --max-memory {-(-projected // 2**20)}MiB or smaller --chunks",
    )


def parts_of(box: Box, widths: tuple[int, int, int], slowest_first: tuple[int, int, int]) -> Iterator[Box]:
    """Yield the parts of `box` that have `widths`, the last ones less, with the slowest axis outermost."""
    starts = [range(box.start[axis], box.stop[axis], widths[axis]) for axis in slowest_first]
    for place in product(*starts):
        by_axis = dict(zip(slowest_first, place, strict=True))
        start = tuple(by_axis[axis] for axis in range(3))
        stop = tuple(min(lo + width, hi) for lo, width, hi in zip(start, widths, box.stop, strict=True))
        yield Box(start, stop)


@dataclass(frozen=True, slots=True)
class Cut:
    """A chunk of a tile."""

    slices: tuple[slice, ...]
    """Its voxels in the tile."""
    index: tuple[int, int, int]
    """Its place among the tile's chunks."""
    voxels: int
    """How many it has, of one channel."""

    def place(self, first: Sequence[int]) -> tuple[int, int, int]:
        """Return its place in the volume, whose chunk at `first` is the tile's first one."""
        return first[0] + self.index[0], first[1] + self.index[1], first[2] + self.index[2]


@lru_cache(maxsize=8)
def cuts(tiling: Tiling, shape: tuple[int, int, int]) -> tuple[Cut, ...]:
    """Return the chunks of a tile in the order in which they are stored; most tiles of a volume are equal."""
    found = []
    for box in tiling.chunks(Box.whole(shape)):
        d, h, w = (lo // width for lo, width in zip(box.start, tiling.chunk, strict=True))
        found.append(Cut(box.slices, (d, h, w), box.size))
    return tuple(found)
