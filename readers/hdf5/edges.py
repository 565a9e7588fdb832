"""Edges: whether the chunks at a dataset's far edges were stored without its filters."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

_DONT_FILTER_PARTIAL_CHUNKS = 0x0002


def are_unfiltered(dataset: h5py.Dataset) -> bool | None:
    """Tell whether chunks that reach beyond the dataset's extents were stored as they are; None when none can tell.

    Nothing about such a chunk itself says so: its filter mask is 0, and where its filters keep the size, as the
    shuffle does, its size is that of any other. h5py has no name for the property, but brings the library that does.

    Source: HDF5 2.0, H5Pget_chunk_opts.
    """
    ask = _chunk_options()
    if ask is None:
        return None
    options = ctypes.c_uint()
    plist = dataset.id.get_create_plist()
    with h5py._objects.phil:  # noqa: SLF001 - the library is not thread-safe: h5py's lock guards every call of it
        status = ask(plist.id, ctypes.byref(options))
    return bool(options.value & _DONT_FILTER_PARTIAL_CHUNKS) if status >= 0 else None


def have_partial_chunks(dataset: h5py.Dataset) -> bool:
    """Tell whether some chunks reach beyond the dataset's extents."""
    return any(extent % width for extent, width in zip(dataset.shape, dataset.chunks, strict=True))


def has_unknown_edges(dataset: h5py.Dataset) -> bool:
    """Tell whether there are partial chunks of which none can tell whether they were stored without the filters."""
    return have_partial_chunks(dataset) and are_unfiltered(dataset) is None


def mark_partial(masks: npt.NDArray[np.uint32], dataset: h5py.Dataset) -> None:
    """Note in a table of filter masks that partial chunks were stored without any filter."""
    for axis, (extent, width) in enumerate(zip(dataset.shape, dataset.chunks, strict=True)):
        if extent % width:
            np.moveaxis(masks, axis, 0)[-1] = np.iinfo(np.uint32).max


@lru_cache(maxsize=1)
def _chunk_options() -> Any:
    """Return libhdf5's function, from the very library that h5py has loaded; None where it cannot be reached."""
    try:
        ask = ctypes.CDLL(h5py.h5p.__file__).H5Pget_chunk_opts
    except (OSError, AttributeError):
        return None
    ask.argtypes = (ctypes.c_int64, ctypes.POINTER(ctypes.c_uint))
    ask.restype = ctypes.c_int
    return ask
