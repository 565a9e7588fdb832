"""Compressibility: how well the voxels of a source compress, tried on a few boxes.

It says which compression is worth its time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from voxload.convert.options import StoredFormat
from voxload.convert.sources.protocol import RawCube, Source, volume_view
from voxload.convert.storage.compression import Compression, Encoder, Hdf5Encoder, ZarrEncoder
from voxload.geometry import Box
from voxload.readers.protocol import Volume

PROBE_EXTENT = 64
"""Voxels per axis of the boxes that are tried: one chunk, about. Where memory is short they are smaller."""
PROBES = 3
"""Boxes along the diagonal: the middle of a cube and its corners."""
WORTH = 1.05
"""Least ratio that is worth decoding for."""
ZSTD_WORTH = 1.4
"""How many times less zstd must store than lz4: it takes that much longer to decode."""
SMALL = 16
"""Ratio from which on storage is no matter any more, and lz4 decodes faster."""

_ASSUMED_SPEED = 5e8
"""Voxels that a thread encodes, bytes a second, where nothing was tried."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found out about a kind of voxels."""

    compression: Compression
    """The one to use."""
    ratio: float
    """Bytes of voxels over bytes as stored."""
    bytes_per_second: float
    """Voxels encoded by one thread."""


def measure(source: Source, stored: StoredFormat, wanted: Compression, *, extent: int = PROBE_EXTENT) -> Measured:
    """Encode a few boxes of a cube and choose; a wanted compression is only measured, on the one in the middle.

    Boxes have `extent` voxels per axis at most.

    Floats are stored with lz4 rather than zstd, which stores 6 percent less of a density field and decodes at two
    thirds of the speed, and not compressed in HDF5, where gzip saves a fifth and makes reading fourteen times slower.
    Of a source that can only be read in order the first planes are tried.
    """
    boxes = [np.ascontiguousarray(voxels) for voxels in _voxels(source, _probes(wanted), extent)]
    kind = source.describe().dtype.kind
    if wanted is not Compression.AUTO:
        return _try(boxes, stored, wanted)
    if stored is StoredFormat.HDF5:
        none = _try(boxes, stored, Compression.NONE)
        gzip = _try(boxes, stored, Compression.GZIP) if kind != "f" else none
        return gzip if gzip.ratio >= WORTH else none
    fast = _try(boxes, stored, Compression.LZ4)
    small = _try(boxes, stored, Compression.ZSTD)
    best = small if fast.ratio < SMALL and small.ratio >= ZSTD_WORTH * fast.ratio else fast
    return best if best.ratio >= WORTH else _try(boxes, stored, Compression.NONE)


def tried_bytes(cube: RawCube, wanted: Compression, extent: int) -> int:
    """Return the bytes of the voxels that `measure` tries of a cube, with what it encodes of them; pure."""
    voxel = 2 * cube.volume_shape[0] * cube.dtype.itemsize + cube.turned_bytes
    return voxel * sum(box.size for box in _boxes(cube, _probes(wanted), extent))


def fitting_extent(cube: RawCube, wanted: Compression, room: int) -> int:
    """Return the largest extent of boxes whose `tried_bytes` are no more than `room`, or 1 where none are; pure."""
    extent = PROBE_EXTENT
    while extent > 1 and tried_bytes(cube, wanted, extent) > room:
        extent //= 2
    return extent


def assumed(stored: StoredFormat, wanted: Compression) -> Measured:
    """Return how floats are stored that are too costly to look at: as density fields, which hardly compress."""
    usual = Compression.LZ4 if stored is StoredFormat.ZARR else Compression.NONE
    return Measured(usual if wanted is Compression.AUTO else wanted, 1.0, _ASSUMED_SPEED)


def _probes(wanted: Compression) -> range:
    return range(PROBES) if wanted is Compression.AUTO else range(PROBES // 2, PROBES // 2 + 1)


def _try(boxes: list[Volume], stored: StoredFormat, compression: Compression) -> Measured:
    dtype = boxes[0].dtype
    encoder: Encoder = (ZarrEncoder if stored is StoredFormat.ZARR else Hdf5Encoder)(compression, dtype)
    started = time.perf_counter()
    size = sum(len(part) for box in boxes for part in encoder(box))
    seconds = time.perf_counter() - started
    whole = sum(box.nbytes for box in boxes)
    return Measured(compression, whole / size, whole / max(seconds, 1e-9))


def _voxels(source: Source, probes: range, extent: int) -> Iterator[Volume]:
    cube = source.describe()
    with source.open() as read_into:
        for box in _boxes(cube, probes, extent):
            shape = cube.order.to_stored((cube.volume_shape[0], *box.shape))
            block = volume_view(cube.order, np.empty(shape, cube.dtype))
            read_into(box, block)
            yield block


def _boxes(cube: RawCube, probes: range, extent: int) -> Iterator[Box]:
    spatial, slowest = cube.volume_shape[1:], cube.spatial_order[0]
    extents = [min(extent, whole) for whole in spatial]
    if cube.is_sequential:
        thin = [1 if axis == slowest else whole for axis, whole in enumerate(spatial)]
        yield Box.whole((thin[0], thin[1], thin[2]))
        return
    seen = set()
    for probe in probes:
        start = tuple((whole - part) * probe // (PROBES - 1) for whole, part in zip(spatial, extents, strict=True))
        if start not in seen:
            seen.add(start)
            yield Box(start, tuple(lo + part for lo, part in zip(start, extents, strict=True)))
