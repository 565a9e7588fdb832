"""Tiling: what a conversion reads at once, and whether that fits its memory. Pure integers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from voxload.convert.layout import Layout
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.units import format_bytes

LIBRARY_BYTES = 128 * 2**20
"""Memory of the interpreter with numpy, h5py, zarr and pyarrow: 91 MiB measured, and room for their small buffers."""
ENCODING_FACTOR = 5
"""Memory that writing a unit takes, in units: 4.3 measured with incompressible voxels in a Zarr shard."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """A volume cut into tiles, which are read at once, of whole units, which are written at once."""

    spatial: tuple[int, int, int]
    """Extents (D, H, W) of the volume."""
    unit: tuple[int, int, int]
    """Extents of a unit; units at the far border are smaller."""
    tile: tuple[int, int, int]
    """Extents of a tile, whole units."""
    slowest_first: tuple[int, int, int]
    """Spatial axes in the order of the source's bytes, which is the order of the tiles."""

    def tiles(self) -> Iterator[Box]:
        """Yield the tiles in the order in which the source stores them."""
        return _cut(Box.whole(self.spatial), self.tile, self.slowest_first)

    def units(self, tile: Box) -> Iterator[Box]:
        """Yield the units of a tile."""
        return _cut(tile, self.unit, self.slowest_first)


def plan_tiling(
    layout: Layout, itemsize: int, *, slowest_first: tuple[int, int, int], scratch_bytes: int, max_memory: int
) -> Tiling:
    """Choose the largest tile that keeps a conversion within its memory.

    A tile grows along the source's fastest axis first and ends as a slab of whole planes, one unit thick:
    growing further would make reads no more contiguous.

    Parameters
    ----------
    layout
        How the volume is cut in storage.
    itemsize
        Bytes of a voxel of one channel.
    slowest_first
        Spatial axes in the order of the source's bytes.
    scratch_bytes
        Memory that reading the source takes beside the tile.
    max_memory
        Bytes that the conversion may take in all.

    Raises
    ------
    UsageError
        When a tile of one unit does not fit; the message gives projected and allowed bytes and the culprit.
    """
    spatial = layout.shape[1:]
    unit = tuple(min(width, extent) for width, extent in zip(layout.unit, spatial, strict=True))
    voxel = layout.shape[0] * itemsize
    fixed = {
        "the interpreter and its libraries": LIBRARY_BYTES,
        "decoding the source's own chunks": scratch_bytes,
        f"encoding {unit[0]}x{unit[1]}x{unit[2]} voxels": ENCODING_FACTOR * prod(unit) * voxel,
    }
    room = max_memory - sum(fixed.values())
    if prod(unit) * voxel > room:
        _refuse({**fixed, "the voxels read at once": prod(unit) * voxel}, max_memory)
    tile = list(unit)
    for axis in reversed(slowest_first[1:]):
        across = prod(tile) // tile[axis] * voxel
        whole = -(-spatial[axis] // unit[axis])
        count = min(whole, room // (across * unit[axis]))
        tile[axis] = count * unit[axis]
        if count < whole:
            break
    return Tiling(spatial, layout.unit, (tile[0], tile[1], tile[2]), slowest_first)


def _refuse(parts: dict[str, int], max_memory: int) -> None:
    projected = sum(parts.values())
    culprit = max(parts, key=lambda name: parts[name])
    raise UsageError(
        "memory of the conversion",
        found=f"{format_bytes(projected)} projected, {format_bytes(parts[culprit])} of it for {culprit}",
        expected=f"at most {format_bytes(max_memory)}",
        remedy=f"use --max-memory {-(-projected // 2**20)}MiB or smaller --chunks",
    )


def _cut(box: Box, widths: tuple[int, int, int], slowest_first: tuple[int, int, int]) -> Iterator[Box]:
    """Cut `box` into parts of `widths`, the last ones smaller, with the slowest axis outermost."""
    starts = [range(box.start[axis], box.stop[axis], widths[axis]) for axis in slowest_first]
    for place in product(*starts):
        by_axis = dict(zip(slowest_first, place, strict=True))
        start = tuple(by_axis[axis] for axis in range(3))
        stop = tuple(min(lo + width, hi) for lo, width, hi in zip(start, widths, box.stop, strict=True))
        yield Box(start, stop)
