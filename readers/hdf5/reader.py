"""Hdf5Reader: boxes of an HDF5 dataset, through h5py."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cached_property
from typing import Any

import h5py
import numpy as np

from voxload.errors import NotFoundError
from voxload.geometry import Box
from voxload.readers.axes import OTHER_AXES, AxisOrder, declared_or_usual, resolve_axes
from voxload.readers.chunks.storedchunks import StoredChunks, grid_of
from voxload.readers.decode.codecs import Pipeline
from voxload.readers.faults import naming_chunk, translated
from voxload.readers.generation import Generation, is_outdated
from voxload.readers.hdf5.checks import (
    check_filters,
    check_written,
    packing,
    scale_names,
)
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.dataset import SettledDataset, filters_of
from voxload.readers.hdf5.decoded import DecodedChunks, library_chunks
from voxload.readers.hdf5.file import check_own_file, object_at, volume_names
from voxload.readers.hdf5.quirks import read_elements
from voxload.readers.hdf5.source import Source, open_source
from voxload.readers.hdf5.tablecache import load_table
from voxload.readers.hdf5.virtual import Linked, Opening, open_linked
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
from voxload.readers.storage.stamp import Stamp
from voxload.text import listed


class Hdf5Reader:
    """Reads boxes of one HDF5 dataset; see the Reader contract.

    h5py serialises its calls with one lock for the whole process, so several threads are safe but no faster.

    Parameters
    ----------
    location
        File and dataset; an empty dataset name means the only volume in the file.
    missing
        What to do about chunks that were never written.
    source
        The file, where it was looked at already.

    Raises
    ------
    NotFoundError
        No such file or dataset; the message lists the datasets there are.
    UsageError
        Axes without names, an element type that is no number, numbers that are packed by CF attributes, filters that
        only a plugin decodes and that were not allowed, a link to another file, or a virtual or external dataset of
        which HDF5 might fill in parts unseen; see `open_linked`.
    DataError
        A truncated or damaged file, one that differs from its catalogue row, or one whose sources are gone.
    """

    def __init__(self, location: Location, missing: Missing, *, source: Source | None = None) -> None:
        self._missing = Missing.parse(missing)
        self._lock = threading.Lock()
        self._table: ChunkTable | None = None
        self._linked: Linked | None = None
        self._decoded: DecodedChunks | None = None
        self._is_closed = False
        subject = str(location)
        with translated(location.path):
            self.source = source or open_source(location.path)
            self._file = self.source.open()
        try:
            with translated(subject):
                self.dataset = _dataset(self._file, location, subject)
                self.order, self._info = _describe(self.dataset, location, subject)
                check_filters(self.dataset, subject)
                check_volume(self._info)
                packed = packing(self.dataset, subject, location.packed)
                if packed:
                    self._info = replace(self._info, packing=packed)
                if self.dataset.chunks and not self.dataset.is_virtual:
                    self._decoded = DecodedChunks(self.dataset, subject)
                self._linked = open_linked(self.dataset, location.path, Opening.of(location, self._missing))
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

    @property
    def pipeline(self) -> Pipeline | None:
        """How its chunks are decoded; None where it has none."""
        return None if self._decoded is None else self._decoded.pipeline

    def routed(self, route: str) -> None:
        """Say in the description why this route was taken."""
        self._info = replace(self._info, route=route)

    def cost(self, box: Box) -> ReadCost:
        """Return chunks and bytes of `box`; contiguous storage counts the box's own bytes."""
        check_box(self._info, box)
        table = self.table()
        if table is None:
            size = self.order.stored_box(box, self._info.lead).size * self._info.dtype.itemsize
            return ReadCost(0, size, size)
        return table.cost(self.order.stored_box(box, self._info.lead))

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`; only its chunks, or its rows, are asked of the file."""
        check_request(self._info, box, out)
        with translated(f"{self._info.location}, box {box}"):
            self.source.stamp.check_unchanged()
            stored = self.require(box)
            target = self.order.stored_view(out, box, self._info.lead)
            is_direct = target.flags.c_contiguous and out.dtype == self._info.native_dtype
            scratch = target if is_direct else np.empty(stored.shape, self._info.native_dtype)
            if self._linked is not None:
                self._linked.read_into(stored, scratch)
            else:
                self._read(stored, scratch)
            if not is_direct:
                copy_cast(target, scratch)

    def generation(self, box: Box) -> Generation | None:  # noqa: ARG002 - of all files together there is one
        """See Dated; that of the file and of all others in which voxels of the dataset lie."""
        linked = [] if self._linked is None else self._linked.stamps()
        return Generation.of([self.source.now(), *(Stamp.of(stamp.path) for stamp in linked)])

    def is_outdated(self) -> bool:
        """See Dated."""
        linked = [] if self._linked is None else self._linked.stamps()
        return is_outdated(stamp for stamp in (self.source.stamp, *linked) if isinstance(stamp, Stamp))

    def close(self) -> None:
        """Close the file."""
        self._is_closed = True
        if self._linked is not None:
            self._linked.close()
        self._file.close()

    def _read(self, stored: Box, scratch: Volume) -> None:
        table = self.table()
        if self._decoded is not None and table is not None:
            self._decoded.read_into(table, stored, scratch)
            return
        with naming_chunk(str(self._info.location), stored, self.dataset.shape, lambda part: self.dataset[part.slices]):
            read_elements(self.dataset, stored.slices, scratch)

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

    @cached_property
    def grid(self) -> tuple[int, ...] | None:
        """Chunks along each axis, in stored axis order; None when storage is contiguous."""
        return grid_of(self.dataset.shape, self.dataset.chunks) if self.dataset.chunks else None

    def stored_chunks(self) -> StoredChunks | None:
        """Return the chunks as they are stored; None when storage is contiguous."""
        table = self.table()
        if table is None or self._decoded is None:
            return None
        return library_chunks(self._decoded, self.dataset, table, self.source.ranges(may_map=False))

    def require(self, box: Box) -> Box:
        """Return `box` in stored indices; refuses voxels never written unless they are to be filled."""
        stored = self.order.stored_box(box, self._info.lead)
        table = self.table()
        if self._missing is Missing.ERROR and self._linked is None:
            check_written(self.dataset, table, stored, str(self._info.location))
        return stored

    @property
    def fill_value(self) -> Any:
        """The value of voxels that were never written."""
        return self.dataset.fillvalue


def _dataset(file: h5py.File, location: Location, subject: str) -> SettledDataset:
    """Return the dataset that `location` names; raises NotFoundError that lists those there are.

    Raises UsageError for one that a link leads to in another file.
    """
    named = object_at(file, location.dataset) if location.dataset else None
    if isinstance(named, h5py.h5d.DatasetID):
        found_at = SettledDataset(named)
        check_own_file(found_at, file, subject)
        return found_at
    found = list(volume_names(file, (len(location.axes),))) if location.axes else []
    found = found or list(volume_names(file))
    name = location.dataset
    if not name and len(found) == 1:
        return SettledDataset(file[found[0]].id)
    raise NotFoundError(
        f"{location.path}",
        found=f"no dataset {name!r}" if name else f"{len(found)} volumes",
        expected=f"one of {listed(sorted(found))}" if found else "a dataset of three or four axes",
        remedy="name one of them" if found else f"check that it is the right file, {OTHER_AXES}",
    )


def _declared(dataset: SettledDataset, subject: str) -> str | None:
    """Return the axes that labels or dimension scales name."""
    return declared_or_usual(subject, dataset.labels, scale_names(dataset))


def _describe(dataset: SettledDataset, location: Location, subject: str) -> tuple[AxisOrder, VolumeInfo]:
    declared = None if location.axes else _declared(dataset, subject)  # which a first reading need not ask for
    order = resolve_axes(subject, ndim=dataset.ndim, given=location.axes, declared=declared, has_lead=True)
    samples, steps, _ = order.lead(dataset.shape)
    info = VolumeInfo(
        location=location,
        format="HDF5",
        axes=order.axes,
        shape=order.to_volume(dataset.shape, 1),
        dtype=dataset.dtype,
        chunks=order.to_volume(dataset.chunks, 1) if dataset.chunks else None,
        shards=None,
        codecs=tuple(name for _, name, _ in filters_of(dataset)),
        samples=samples,
        steps=steps,
    )
    return order, info
