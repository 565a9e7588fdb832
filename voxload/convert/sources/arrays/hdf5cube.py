"""Hdf5Cube: a cube that is one HDF5 dataset of three or four axes; Hdf5Slab: a part of a dataset of more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import h5py
import numpy as np

from voxload.convert.sources.axes import check_layout_names, cube_axes
from voxload.convert.sources.binary.flat import FlatFile
from voxload.convert.sources.hdf5contents import Hdf5Dataset
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.names import volume_names
from voxload.convert.sources.protocol import RawCube, ReadInto, filled
from voxload.errors import DataError, NotFoundError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.faults import naming_chunk, translated
from voxload.readers.hdf5.checks import check_supported, check_written
from voxload.readers.hdf5.chunktable import ChunkTable, table_bytes
from voxload.readers.hdf5.decoded import DecodedChunks
from voxload.readers.hdf5.file import check_own_file
from voxload.readers.hdf5.quirks import read_elements
from voxload.readers.hdf5.reader import Hdf5Reader
from voxload.readers.hdf5.source import Source as Hdf5Source
from voxload.readers.hdf5.source import open_source
from voxload.readers.hdf5.tablecache import MAX_KEPT_BYTES, load_table
from voxload.readers.protocol import Location, Missing, Volume, copy_cast


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


def layout_axes(
    subject: str, stored: Hdf5Dataset, layout: str, *, given: str | None, lead: str = "", is_xyz: bool = False
) -> AxisOrder:
    """Return the axes of the cubes in a dataset of a format that fixes them, unless the caller names others.

    Parameters
    ----------
    subject
        What error messages are about.
    stored
        What HDF5 says of the dataset.
    layout
        Axes of each cube.
    given
        The caller's word.
    lead
        Axes of the dataset before those of a cube.
    is_xyz
        Whether the format calls D, H and W x, y and z.

    Raises
    ------
    UsageError
        When labels or dimensions have names of other axes than the format's, or the caller's letters do not fit.
    """
    if given is None:
        check_layout_names(subject, stored.shape, lead + layout, namings=stored.namings, is_xyz=is_xyz)
    return cube_axes(subject, stored.shape[len(lead) :], given=given or layout)


class Hdf5Slab:
    """The part of a dataset where some axes have one index.

    A dataset may hold thousands of such cubes, so nothing is opened here: `check_slabs` looks at all at once.

    Parameters
    ----------
    name
        The dataset.
    cube
        What is known of the part; see `describe_dataset`.
    fixed
        Axis of the dataset to index.
    missing
        What to do about voxels that were never written.
    """

    def __init__(self, name: str, cube: RawCube, fixed: Mapping[int, int], *, missing: Missing = Missing.ERROR) -> None:
        self._name = name
        self._cube = filled(cube, missing)
        self._fixed = fixed
        self._missing = missing

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return self._cube

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the file for reading; chunks that were never written raise DataError, unless they are to be filled."""
        subject = f"{self._cube.path}:{self._name}"
        with ExitStack() as stack:
            with translated(subject):
                source = open_source(str(self._cube.path))
                file = stack.enter_context(source.open())
                dataset = _dataset(file, self._name)
                table = load_table(dataset, source.stamp) if dataset.chunks else None
                decoded = DecodedChunks(dataset, subject) if dataset.chunks else None
            stored = _Stored(dataset, table, decoded, source, subject, self._missing)

            def read_into(box: Box, out: Volume) -> None:
                with translated(f"{subject}, box {box}"):
                    self._read(stored, box, out)

            yield read_into

    def _read(self, stored: _Stored, box: Box, out: Volume) -> None:
        order = self._cube.order
        part = self._within(stored.dataset.shape, order.box(box, out.shape[0]))
        target = order.view(out)
        is_direct = target.flags.c_contiguous and out.dtype == self._cube.dtype
        scratch = target if is_direct else np.empty(target.shape, self._cube.dtype)
        stored.read(part, scratch.reshape(part.shape))
        if not is_direct:
            copy_cast(target, scratch)

    def _within(self, shape: tuple[int, ...], box: Box) -> Box:
        """Return a box of the cube in indices of the dataset."""
        pairs = list(zip(box.start, box.stop, strict=True))
        components = len(shape) - len(self._fixed) - len(pairs)
        if components:
            pairs.pop()
        spans = iter(pairs)
        found = [
            (self._fixed[axis], self._fixed[axis] + 1) if axis in self._fixed else next(spans, (0, extent))
            for axis, extent in enumerate(shape)
        ]
        return Box(tuple(lo for lo, _ in found), tuple(hi for _, hi in found))


@dataclass(frozen=True, slots=True)
class _Stored:
    """An open dataset."""

    dataset: h5py.Dataset
    """The dataset."""
    table: ChunkTable | None
    """Its chunks; None where storage is contiguous."""
    decoded: DecodedChunks | None
    """What decodes them."""
    source: Hdf5Source
    """Its file."""
    subject: str
    """What error messages are about."""
    missing: Missing
    """What to do about voxels that were never written."""

    def read(self, part: Box, out: Volume) -> None:
        """Fill `out`, in C order, with a box of the dataset."""
        self.source.stamp.check_unchanged()
        if self.missing is Missing.ERROR:
            check_written(self.dataset, self.table, part, self.subject)
        if self.decoded is not None and self.table is not None:
            self.decoded.read_into(self.table, part, out)
            return
        with naming_chunk(self.subject, part, self.dataset.shape, lambda some: self.dataset[some.slices]):
            read_elements(self.dataset, part.slices, out)


def check_slabs(path: Path, name: str) -> None:
    """Refuse a dataset whose parts cannot be read.

    Raises
    ------
    NotFoundError
        When it is not there.
    UsageError
        When it is a link to another file, needs a filter that is not installed, or lies in other files.
    DataError
        When the file or its filters are damaged.
    """
    with translated(f"{path}:{name}"), open_source(str(path)).open() as file:
        _dataset(file, name)


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    subject = f"{file.filename}:{name}"
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset):
        raise NotFoundError(subject, found="no such dataset", remedy="the file changed: convert it again")
    check_own_file(dataset, file, subject)
    check_supported(dataset, Location(file.filename, name))
    if min(dataset.shape) < 1:
        raise DataError(subject, found=f"shape {dataset.shape}", expected="extents of 1 or more")
    return dataset
