"""Zarr store: generated samples in one Zarr array each, of format 2 or 3."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zarr
from zarr.codecs import BloscCname, BloscCodec, BloscShuffle, BytesCodec, Endian, GzipCodec, ZstdCodec

from voxload.benchmark.codec import Codec
from voxload.benchmark.dataset_plan import DatasetPlan
from voxload.benchmark.storage import StoreFormat, WriteBlock
from voxload.geometry import Box
from voxload.readers.protocol import Volume

_DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute in which xarray keeps the names of the axes of format 2, which has none of its own."""


@contextmanager
def open_zarr(path: Path, plan: DatasetPlan) -> Iterator[WriteBlock]:
    """Make an array and yield what writes blocks of it; raises OSError when the storage refuses."""
    array, order = _create(path, plan), plan.storage.order

    def write(box: Box, block: Volume) -> None:
        array[order.box(box, plan.shape[0]).slices] = order.view(block)

    yield write


def _create(path: Path, plan: DatasetPlan) -> zarr.Array[Any]:
    """Make the array; every chunk is stored, those of zeros too, for a missing chunk is an error to voxload."""
    storage, names = plan.storage, list(plan.storage.axes.lower())
    is_old = storage.format is StoreFormat.ZARR2
    return zarr.create_array(
        path,
        shape=plan.stored_shape,
        chunks=storage.order.to_stored(storage.chunks or plan.shape),
        shards=None if storage.shards is None else storage.order.to_stored(storage.shards),
        dtype=plan.stored_dtype,
        filters=None,
        serializer="auto" if is_old else _serializer(plan),
        compressors=storage.codec.coder(plan.stored_dtype) if is_old else _compressor(storage.codec, plan),
        fill_value=0,
        zarr_format=2 if is_old else 3,
        dimension_names=None if is_old else names,
        attributes={_DIMENSIONS: names} if is_old else None,
        config={"write_empty_chunks": True},
    )


def _serializer(plan: DatasetPlan) -> BytesCodec:
    """Return what makes bytes of format 3: left to itself, zarr-python stores big-endian voxels as little-endian."""
    is_swapped = plan.stored_dtype.newbyteorder("=") != plan.stored_dtype
    other = Endian.big if sys.byteorder == "little" else Endian.little
    return BytesCodec(endian=other if is_swapped else Endian(sys.byteorder))


def _compressor(codec: Codec, plan: DatasetPlan) -> GzipCodec | ZstdCodec | BloscCodec | None:
    """Return the codec of Zarr format 3."""
    dtype = plan.stored_dtype
    if codec.is_none:
        return None
    if codec.is_blosc:
        shuffle = BloscShuffle.shuffle if dtype.kind == "f" else BloscShuffle.bitshuffle
        return BloscCodec(cname=BloscCname(codec.base), clevel=codec.effort, shuffle=shuffle, typesize=dtype.itemsize)
    return GzipCodec(level=codec.effort) if codec.base == "gzip" else ZstdCodec(level=codec.effort)
