"""Route: whether a dataset's bytes can be read without libhdf5, and how."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import h5py
import numpy as np

from voxload.readers.decode.bitpacking import NBit, ScaleOffset
from voxload.readers.decode.bitshuffle import Bitshuffle
from voxload.readers.decode.blosc2 import Blosc2
from voxload.readers.decode.codecs import (
    BLOSC,
    BZIP2,
    DEFLATE,
    LZ4_HDF5,
    LZF,
    ZSTD,
    Fletcher32,
    Pipeline,
    Step,
    Unshuffle,
    first_unsized,
)
from voxload.readers.decode.plugins import NAMES, Plugin, allowed
from voxload.readers.decode.szip import Szip
from voxload.readers.hdf5.dataset import filters_of
from voxload.readers.hdf5.quirks import has_unknown_edges
from voxload.readers.pasting.pasteplan import ChunkShape

_SHUFFLE = 2
_SZIP, _NBIT, _SCALE_OFFSET, _BITSHUFFLE, _BLOSC2 = 4, 5, 6, 32008, 32026
_WIDTHS = (1, 2, 4, 8)
_STEPS: dict[int, Step] = {
    1: DEFLATE,
    3: Fletcher32(),
    307: BZIP2,
    32000: LZF,
    32001: BLOSC,
    32004: LZ4_HDF5,
    32015: ZSTD,
}
"""Filters read natively, by their registered number (HDF5 filter registry)."""


@dataclass(frozen=True, slots=True)
class NativeRoute:
    """How to read a dataset without libhdf5."""

    shape: ChunkShape
    """How elements lie in a chunk; contiguous storage is one chunk."""
    pipeline: Pipeline
    """How a chunk is decoded."""
    offset: int | None
    """First byte of contiguous storage; None where storage is chunked."""


def find_route(dataset: h5py.Dataset, pipeline: Pipeline | None = None) -> NativeRoute | str:
    """Return how to read `dataset` natively, or the reason, in words, why libhdf5 must read it.

    `pipeline` is what `find_pipeline` found, where that was asked already.
    """
    if dataset.is_virtual:
        return f"virtual dataset of {dataset.id.get_create_plist().get_virtual_count()} sources"
    if dataset.external:
        return "external storage"
    if dataset.dtype.itemsize not in _WIDTHS or dataset.dtype.kind not in "biuf":
        return f"elements of type {dataset.dtype}"
    if not dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype, logical=True)):
        return "elements whose stored form is not numpy's"
    if dataset.chunks is None:
        return _contiguous(dataset)
    found = find_pipeline(dataset) if pipeline is None else pipeline
    if isinstance(found, str):
        return found
    if found.has_filters and has_unknown_edges(dataset):
        return "chunks at the edges that may have skipped the filters"
    return NativeRoute(ChunkShape.of(dataset.chunks, dataset.dtype), found, None)


def find_pipeline(dataset: h5py.Dataset) -> Pipeline | str:
    """Return how a chunk of `dataset` is decoded to elements of its stored type, or the reason why that is not known.

    The stored type need not be one of numpy's.
    """
    itemsize = dataset.id.get_type().get_size()
    filters = [(number, values) for number, _, values in filters_of(dataset)]
    is_shuffled = bool(filters) and filters[0][0] == _SHUFFLE
    if is_shuffled and filters[0][1][:1] != (itemsize,):
        return f"a shuffle of {filters[0][1][:1]} bytes for elements of {itemsize}"
    found = [(number, _step(number, values, dataset)) for number, values in filters[is_shuffled:]]
    unknown = [number for number, step in found if step is None]
    if unknown:
        return f"filter {unknown[0]}" + (f" ({NAMES[unknown[0]]})" if unknown[0] in NAMES else "")
    steps = tuple(step for _, step in found if step is not None)
    unsized = first_unsized(steps)
    if unsized is not None:
        return f"filter {found[steps.index(unsized)][0]} behind another compressor"
    return Pipeline(steps, prod(dataset.chunks) * itemsize, is_shuffled and itemsize > 1, int(is_shuffled))


def _step(number: int, values: tuple[int, ...], dataset: h5py.Dataset) -> Step | None:
    """Return what undoes a filter with these parameters; None when only libhdf5 can."""
    kind = dataset.id.get_type()
    itemsize = kind.get_size()
    if number == _SHUFFLE:
        return Unshuffle(values[0]) if values[:1] == (itemsize,) else None
    if number == _SZIP:
        return Szip.parse(values, itemsize)
    if number == _NBIT:
        return NBit.parse(values, itemsize)
    if number == _SCALE_OFFSET:
        if itemsize not in _WIDTHS or dataset.dtype.kind not in "iuf":
            return None
        # Of a type that is not numpy's, class and sign are those of the type that it is read as.
        order = ">" if kind.get_order() == h5py.h5t.ORDER_BE else "<"
        return ScaleOffset.parse(values, np.dtype(f"{order}{dataset.dtype.kind}{itemsize}"))
    if number == _BITSHUFFLE:
        return Bitshuffle.parse(values, itemsize)
    if number == _BLOSC2:
        return Blosc2.parse(values)
    if number in NAMES:
        return Plugin(number, values) if NAMES[number] in allowed() else None
    return _STEPS.get(number)


def _contiguous(dataset: h5py.Dataset) -> NativeRoute | str:
    offset = dataset.id.get_offset()
    if offset is None:
        return "compact storage, or none written"
    pipeline = Pipeline((), prod(dataset.shape) * dataset.dtype.itemsize)
    return NativeRoute(ChunkShape.of(dataset.shape, dataset.dtype), pipeline, int(offset))
