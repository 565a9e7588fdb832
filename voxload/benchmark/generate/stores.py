"""Stores: one generated sample written part by part from its plan to its final name, in each format."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from zarr.codecs import BloscCname, BloscCodec, BloscShuffle, BytesCodec, Endian, GzipCodec, ZstdCodec

from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.storage import Codec, StoreFormat, WriteBlock
from voxload.convert.manifest import stored_bytes
from voxload.convert.sources.protocol import volume_view
from voxload.convert.storage.hdf5 import DeferredErrorFile
from voxload.convert.write.writer import writing
from voxload.errors import UsageError
from voxload.files.atomic import replacing
from voxload.geometry import Box
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume


@contextmanager
def open_flat(path: Path, plan: DatasetPlan) -> Iterator[WriteBlock]:
    """Make a file and yield what writes blocks of it; raises OSError when the storage refuses."""
    shape, dtype, order = plan.stored_shape, plan.stored_dtype, plan.storage.order
    with path.open("wb", buffering=0) as file:
        if plan.storage.format is StoreFormat.NPY:
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
        offset, descriptor = file.tell(), file.fileno()

        def write(box: Box, block: Volume) -> None:
            stored = np.ascontiguousarray(order.view(block), dtype=dtype)
            begin = order.box(box, plan.shape[0]).start
            for first, run in _runs(stored, begin, shape):
                _write_all(descriptor, offset + first * dtype.itemsize, run)

        yield write


def _runs(block: Volume, begin: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[int, Volume]]:
    """Yield the parts of a block that lie in one piece in an array of `shape`, each with the place of its first voxel.

    `begin` is where the block begins in the array.
    """
    split = len(shape) - 1
    while split and block.shape[split] == shape[split]:
        split -= 1
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for index in np.ndindex(*block.shape[:split]):
        where = [lo + step for lo, step in zip(begin, (*index, *(0,) * (len(shape) - split)), strict=True)]
        yield sum(map(int.__mul__, where, strides)), block[index]


def _write_all(descriptor: int, position: int, run: Volume) -> None:
    """Write until all is written: the system takes 2 GiB at most at once, and less on a disk that is nearly full."""
    content = run.reshape(-1).view(np.uint8).data
    while content:
        count = os.pwrite(descriptor, content, position)
        content, position = content[count:], position + count


@contextmanager
def open_hdf5(path: Path, plan: DatasetPlan) -> Iterator[WriteBlock]:
    """Make a file and yield what writes blocks of it; raises OSError when the storage refuses."""
    sink = DeferredErrorFile(path)
    try:
        with h5py.File(sink, "w") as file:
            dataset, order = _create_hdf5(file, plan), plan.storage.order

            def write(box: Box, block: Volume) -> None:
                dataset[order.box(box, plan.shape[0]).slices] = order.view(block)
                sink.check()

            yield write
        sink.check()
    finally:
        sink.close()


def check_filters(codec: Codec) -> None:
    """Refuse a codec whose HDF5 filter is not installed."""
    if not (codec.is_none or codec.base == "gzip"):
        _plugin(codec)


def _create_hdf5(file: h5py.File, plan: DatasetPlan) -> h5py.Dataset:
    storage = plan.storage
    chunks = None if storage.chunks is None else storage.order.to_stored(storage.chunks)
    options = {} if storage.codec.is_none else {**_filter(storage.codec, plan), "shuffle": storage.codec.is_shuffled}
    dataset = file.create_dataset(
        storage.format.dataset, shape=plan.stored_shape, dtype=plan.stored_dtype, chunks=chunks, **options
    )
    for dimension, name in zip(dataset.dims, storage.axes.lower(), strict=True):
        dimension.label = name
    return dataset


def _filter(codec: Codec, plan: DatasetPlan) -> dict[str, Any]:
    """Return h5py's arguments for a codec."""
    if codec.base == "gzip":
        return {"compression": "gzip", "compression_opts": codec.effort}
    plugin = _plugin(codec)
    if codec.is_blosc:
        shuffle = plugin.Blosc.SHUFFLE if plan.stored_dtype.kind == "f" else plugin.Blosc.BITSHUFFLE
        return {"compression": plugin.Blosc(cname=codec.base, clevel=codec.effort, shuffle=shuffle)}
    return {"compression": plugin.LZ4() if codec.base == "lz4" else plugin.Zstd(clevel=codec.effort)}


def _plugin(codec: Codec) -> Any:
    try:
        return importlib.import_module("hdf5plugin")
    except ImportError as error:
        raise UsageError(
            f"codec {codec.name} in HDF5",
            found=str(error),
            expected="its filter, which hdf5plugin has",
            remedy='pip install "voxload[bench]", or use gzip',
        ) from error


_DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute in which xarray keeps the names of the axes of format 2, which has none of its own."""


@contextmanager
def open_zarr(path: Path, plan: DatasetPlan) -> Iterator[WriteBlock]:
    """Make an array and yield what writes blocks of it; raises OSError when the storage refuses."""
    array, order = _create_zarr(path, plan), plan.storage.order

    def write(box: Box, block: Volume) -> None:
        array[order.box(box, plan.shape[0]).slices] = order.view(block)

    yield write


def _create_zarr(path: Path, plan: DatasetPlan) -> zarr.Array[Any]:
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


_OPEN: dict[StoreFormat, Callable[[Path, DatasetPlan], AbstractContextManager[WriteBlock]]] = {
    StoreFormat.HDF5: open_hdf5,
    StoreFormat.ZARR2: open_zarr,
    StoreFormat.ZARR3: open_zarr,
    StoreFormat.NPY: open_flat,
    StoreFormat.RAW: open_flat,
}


def sample_path(plan: DatasetPlan, folder: Path, number: int) -> Path:
    """Return where a sample is when it is complete."""
    return folder / f"{plan.name(number)}{plan.storage.format.suffix}"


def write_sample(plan: DatasetPlan, folder: Path, number: int, *, tell: Callable[[int], None] | None = None) -> int:
    """Write a sample, which appears whole or not at all; return its stored bytes.

    Never is more than one part of it in memory, and what encoding that takes. `tell` hears of the bytes of each part.

    Raises StorageError when the storage refuses.
    """
    final, values = sample_path(plan, folder, number), plan.values
    with writing(final):
        with replacing(final) as temporary, _OPEN[plan.storage.format](temporary, plan) as write:
            for part in plan.parts():
                block = _empty(plan, part)
                values.fill(part, block, sample=number)
                write(part, block)
                if tell is not None:
                    tell(block.nbytes)
        return stored_sample(plan, folder, number)


def stored_sample(plan: DatasetPlan, folder: Path, number: int) -> int:
    """Return the bytes of a complete sample in storage."""
    if not plan.storage.format.is_chunked:
        return plan.sample_bytes
    path = sample_path(plan, folder, number)
    with translated(f"{path}"):
        return stored_bytes(path, plan.storage.format.dataset)


def _empty(plan: DatasetPlan, part: Box) -> Volume:
    """Return an array for all channels of a part that lies in memory as it will be stored."""
    order = plan.storage.order
    return volume_view(order, np.empty(order.to_stored((plan.shape[0], *part.shape)), plan.values.dtype))
