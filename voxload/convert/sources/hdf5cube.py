"""Hdf5Cube: a cube that is one HDF5 dataset of three or four axes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import h5py

from voxload.convert.sources.filling import filled
from voxload.convert.sources.flat import FlatFile
from voxload.convert.sources.hdf5facts import Hdf5Dataset
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.protocol import RawCube, ReadInto
from voxload.convert.sources.volumenames import volume_names
from voxload.readers.axes import AxisOrder
from voxload.readers.hdf5.chunktable import table_bytes
from voxload.readers.hdf5.reader import Hdf5Reader
from voxload.readers.hdf5.tablecache import MAX_KEPT_BYTES
from voxload.readers.protocol import Location


class Hdf5Cube:
    """A dataset as a whole.

    Parameters
    ----------
    name
        The dataset.
    cube
        What is known of it; see `describe_dataset`.
    hints
        Where the files that it names may lie, and what voxels are that were never written.

    Raises
    ------
    UsageError
        When it is a link to another file, needs a filter that is not installed, or lies in other files that HDF5
        might fill in for.
    DataError
        When the file is damaged.
    """

    def __init__(self, name: str, cube: RawCube, hints: Hints | None = None) -> None:
        hints = hints or Hints()
        self._location = Location(str(cube.path), dataset=name, axes=cube.order.axes, within=hints.within)
        self._missing = hints.missing
        self._cube = filled(cube, hints.missing)
        Hdf5Reader(self._location, self._missing).close()

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return self._cube

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the file for reading; chunks that were never written raise DataError, unless they are to be filled.

        A dataset without chunks is read by position: HDF5 would ask for row after row, holding its lock.
        """
        reader = Hdf5Reader(self._location, self._missing)
        flat = _flat_file(reader.dataset, self._cube)
        try:
            if flat is None:
                yield reader.read_into
                return
            with flat.open(reader.source.stamp.check_unchanged) as read_into:
                yield read_into
        finally:
            reader.close()


def _flat_file(dataset: h5py.Dataset, cube: RawCube) -> FlatFile | None:
    """Return where the voxels lie in the file; None where they lie in chunks, in other files, or as another type."""
    is_flat = dataset.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS and not dataset.external
    offset = dataset.id.get_offset() if is_flat else None
    if offset is None or h5py.h5t.py_create(dataset.dtype) != dataset.id.get_type():
        return None
    return FlatFile(cube.path, offset, shape=cube.shape, dtype=dataset.dtype, order=cube.order)


def _table_bytes(stored: Hdf5Dataset) -> int:
    """Return the memory of a dataset's table of chunks, and of those that the process keeps beside it."""
    table = table_bytes(stored.shape, stored.chunks) if stored.chunks else 0
    return table + min(table, MAX_KEPT_BYTES)


def describe_dataset(
    path: Path, name: str, stored: Hdf5Dataset, *, order: AxisOrder, fixed: tuple[int, ...] = ()
) -> RawCube:
    """Return what HDF5 says of the cube in a dataset, or in the part of it where the axes in `fixed` have one index.

    Axes of the dataset beyond those of `order` and `fixed` are components: together with the one before they are the
    last axis of the cube, in the order of their bytes.
    """
    extents = [extent for axis, extent in enumerate(stored.shape) if axis not in fixed]
    last = len(order.axes) - 1
    return RawCube(
        path,
        volume_names([name])[name],
        shape=(*extents[:last], prod(extents[last:])),
        order=order,
        dtype=stored.dtype.newbyteorder("="),
        # One chunk as decoded, and the one that HDF5 decodes it from or still keeps.
        scratch_bytes=2 * prod(stored.chunks) * stored.dtype.itemsize if stored.chunks else 0,
        table_bytes=_table_bytes(stored),
    )
