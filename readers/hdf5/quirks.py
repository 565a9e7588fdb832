"""Quirks of libhdf5: what it gives wrong, or does not tell, of a dataset's elements or chunks.

Elements: what h5py gives for a dataset's elements, also where libhdf5 would lose the sign of some. From signed
integers that use some of their bits only, libhdf5 makes wrong ones where just the byte order changes: it turns their
bytes and leaves the unused bits as they are. So their bytes are turned here.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from voxload.readers.hdf5.dataset import creation_of
from voxload.readers.protocol import Volume

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
    plist = creation_of(dataset)
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


def read_elements(
    dataset: h5py.Dataset, selection: tuple[slice, ...], out: Volume, into: tuple[slice, ...] = ()
) -> None:
    """Read a part of `dataset`, as h5py gives it, into a part of `out`, all of it by default.

    `out` is contiguous and of this machine's byte order.
    """
    if dataset.dtype.isnative or dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype, logical=True)):
        dataset.read_direct(out, selection, into or None)
        return
    found = np.empty(out[into].shape, dataset.dtype)
    dataset.read_direct(found, selection)
    out[into] = found


def converted(data: Volume, stored: h5py.h5t.TypeID, dtype: np.dtype[np.generic]) -> Volume:
    """Return bytes of elements of the type `stored` as numbers of this machine, of the type that h5py has for them."""
    size = stored.get_size()
    count = len(data) // size
    wanted = h5py.h5t.py_create(dtype, logical=True)
    if stored.equal(wanted):
        room = data
    else:
        room = np.empty(count * max(size, dtype.itemsize), np.uint8)
        room[: len(data)] = data
        h5py.h5t.convert(stored, wanted, count, room)
    numbers: Volume = room[: count * dtype.itemsize].view(dtype)
    return numbers.astype(dtype.newbyteorder("="), copy=False)
