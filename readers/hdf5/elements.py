"""Elements: what h5py gives for a dataset's elements, also where libhdf5 would lose the sign of some.

From signed integers that use some of their bits only, libhdf5 makes wrong ones where just the byte order changes: it
turns their bytes and leaves the unused bits as they are. So their bytes are turned here.
"""

from __future__ import annotations

import h5py
import numpy as np

from voxload.readers.protocol import Volume


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
