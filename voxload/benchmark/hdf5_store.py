"""HDF5 store: generated samples in one HDF5 file each; the one file here that stands on hdf5plugin."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from voxload.benchmark.codec import Codec
from voxload.benchmark.dataset_plan import DatasetPlan
from voxload.benchmark.storage import WriteBlock
from voxload.convert.storage.hdf5 import DeferredErrorFile
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.protocol import Volume


@contextmanager
def open_hdf5(path: Path, plan: DatasetPlan) -> Iterator[WriteBlock]:
    """Make a file and yield what writes blocks of it; raises OSError when the storage refuses."""
    sink = DeferredErrorFile(path)
    try:
        with h5py.File(sink, "w") as file:
            dataset, order = _create(file, plan), plan.storage.order

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


def _create(file: h5py.File, plan: DatasetPlan) -> h5py.Dataset:
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
