"""Hdf5Reader: boxes of an HDF5 dataset, through h5py."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder, declared_axes, resolve_axes
from voxload.readers.faults import naming_chunk, translated
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.parameters import check_parameters
from voxload.readers.hdf5.source import open_source
from voxload.readers.hdf5.stored import library_chunks
from voxload.readers.hdf5.tablecache import load_table
from voxload.readers.protocol import (
    Location,
    Missing,
    ReadCost,
    Volume,
    VolumeInfo,
    check_box,
    check_request,
    check_volume,
    closed,
    copy_cast,
)
from voxload.readers.remote import Traffic
from voxload.readers.stored import StoredChunks, grid_of


class Hdf5Reader:
    """Reads boxes of one HDF5 dataset; see the Reader contract.

    h5py serialises its calls with one lock for the whole process, so several threads are safe but no faster.

    Parameters
    ----------
    location
        File and dataset; an empty dataset name means the only volume in the file.
    missing
        What to do about chunks that were never written.

    Raises
    ------
    NotFoundError
        No such file or dataset; the message lists the datasets there are.
    UsageError
        Axes without names, an element type that is no number, or a virtual or external dataset.
    DataError
        A truncated or damaged file, or one that differs from its catalogue row.
    """

    def __init__(self, location: Location, missing: Missing) -> None:
        self._missing = Missing.parse(missing)
        self._lock = threading.Lock()
        self._table: ChunkTable | None = None
        self._is_closed = False
        with translated(location.path):
            self.source = open_source(location.path)
            self._file = self.source.open()
        try:
            with translated(str(location)):
                self.dataset = _dataset(self._file, location)
                self.order, self._info = _describe(self.dataset, location)
                check_supported(self.dataset, location)
            check_volume(self._info)
        except BaseException:
            self._file.close()
            raise

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._info

    @property
    def traffic(self) -> Traffic | None:
        """What was asked of the storage, since the file was opened; None of local files."""
        return self.source.traffic

    def routed(self, route: str) -> None:
        """Say in the description why this route was taken."""
        self._info = replace(self._info, route=route)

    def cost(self, box: Box) -> ReadCost:
        """Return chunks and bytes of `box`; contiguous storage counts the box's own bytes."""
        check_box(self._info, box)
        table = self.table()
        if table is None:
            size = self._info.shape[0] * box.size * self._info.dtype.itemsize
            return ReadCost(0, size, size)
        return table.cost(self.order.box(box, self._info.shape[0]))

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`; only its chunks, or its rows, are asked of the file."""
        check_request(self._info, box, out)
        with translated(f"{self._info.location}, box {box}"):
            stored = self.require(box)
            target = self.order.view(out)
            is_direct = target.flags.c_contiguous and out.dtype == self._info.native_dtype
            scratch = target if is_direct else np.empty(stored.shape, self._info.native_dtype)
            unit = self.dataset.chunks or self.dataset.shape
            with naming_chunk(str(self._info.location), stored, unit, lambda part: self.dataset[part.slices]):
                self.dataset.read_direct(scratch, stored.slices)
            if not is_direct:
                copy_cast(target, scratch)

    def close(self) -> None:
        """Close the file."""
        self._is_closed = True
        self._file.close()

    def table(self) -> ChunkTable | None:
        """Return the table of chunks, read once and then kept; None when storage is contiguous."""
        if self._is_closed:
            raise closed(self._info)
        if self._info.chunks is None:
            return None
        with self._lock:
            if self._table is None:
                with translated(str(self._info.location)):
                    self._table = load_table(self.dataset, self.source.stamp)
                    self.source.settle()
            return self._table

    @property
    def grid(self) -> tuple[int, ...] | None:
        """Chunks along each axis, in stored axis order; None when storage is contiguous."""
        return grid_of(self.dataset.shape, self.dataset.chunks) if self.dataset.chunks else None

    def stored_chunks(self) -> StoredChunks | None:
        """Return the chunks as they are stored; None when storage is contiguous."""
        table = self.table()
        return None if table is None else library_chunks(self.dataset, table, self.source.ranges(may_map=False))

    def require(self, box: Box) -> Box:
        """Return `box` in stored indices; refuses a changed file, and voxels never written unless they are filled."""
        self.source.stamp.check_unchanged()
        stored = self.order.box(box, self._info.shape[0])
        table = self.table()
        if self._missing is Missing.ERROR:
            check_written(self.dataset, table, stored, str(self._info.location))
        return stored

    @property
    def fill_value(self) -> Any:
        """The value of voxels that were never written."""
        return self.dataset.fillvalue


def check_written(dataset: h5py.Dataset, table: ChunkTable | None, stored: Box, subject: str) -> None:
    """Refuse values that were never written: HDF5 itself would hand out the fill value without a word.

    `table` is None where storage is contiguous.
    """
    absent = table.first_missing(stored) if table else None
    is_unwritten = table is None and dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_NOT_ALLOCATED
    if absent is not None or is_unwritten:
        raise DataError(
            subject,
            found=f"chunk {absent} never written" if absent is not None else "no value ever written",
            expected="every value stored",
            remedy='finish writing the file, or read a volume with missing="fill"',
        )


def _dataset(file: h5py.File, location: Location) -> h5py.Dataset:
    """Return the dataset that `location` names; raises NotFoundError that lists those there are."""
    named = file.get(location.dataset) if location.dataset else None
    if isinstance(named, h5py.Dataset):
        return named
    found: list[str] = []
    file.visititems(
        lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) and item.ndim in (3, 4) else None
    )
    name = location.dataset
    if not name and len(found) == 1:
        return file[found[0]]
    raise NotFoundError(
        f"{location.path}",
        found=f"no dataset {name!r}" if name else f"{len(found)} volumes",
        expected=f"one of {sorted(found)}" if found else "a dataset of three or four axes",
        remedy="name one of them" if found else "check that it is the right file",
    )


def _describe(dataset: h5py.Dataset, location: Location) -> tuple[AxisOrder, VolumeInfo]:
    labels = [dimension.label for dimension in dataset.dims] if dataset.ndim else None
    order = resolve_axes(str(location), ndim=dataset.ndim, given=location.axes, declared=declared_axes(labels))
    info = VolumeInfo(
        location=location,
        format="HDF5",
        axes=order.axes,
        shape=order.to_volume(dataset.shape, 1),
        dtype=dataset.dtype,
        chunks=order.to_volume(dataset.chunks, 1) if dataset.chunks else None,
        shards=None,
        codecs=tuple(name for _, name, _ in _filters(dataset)),
    )
    return order, info


def _filters(dataset: h5py.Dataset) -> list[tuple[int, str, tuple[int, ...]]]:
    """Return (id, name, parameters) of the dataset's filters in the order of writing."""
    plist: Any = dataset.id.get_create_plist()
    rows = [plist.get_filter(index) for index in range(plist.get_nfilters())]
    return [(int(row[0]), row[3].decode(errors="replace").split(";")[0].strip(), row[2]) for row in rows]


def check_supported(dataset: h5py.Dataset, location: Location) -> None:
    """Refuse layouts whose missing parts HDF5 fills without a word, and filters that are not installed."""
    if dataset.is_virtual or dataset.external:
        kind = "virtual" if dataset.is_virtual else "external"
        raise UsageError(
            str(location),
            found=f"{kind} storage, whose missing files HDF5 replaces by fill values",
            remedy="read its source files, or copy it with h5repack first",
        )
    for number, name, _ in _filters(dataset):
        if not h5py.h5z.filter_avail(number) and importlib.util.find_spec("hdf5plugin"):
            importlib.import_module("hdf5plugin")
        if not h5py.h5z.filter_avail(number):
            raise UsageError(
                str(location),
                found=f"filter {number} ({name}), which is not installed",
                remedy="pip install hdf5plugin",
            )
    check_parameters(str(location), dataset, [(number, values) for number, _, values in _filters(dataset)])
