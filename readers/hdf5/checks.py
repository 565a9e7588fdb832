"""Checks of one HDF5 dataset before it is read: what HDF5 would fill, decode or crash at without a word."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

import h5py

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.packing import check_unpacked
from voxload.readers.hdf5.parameters import check_parameters
from voxload.readers.protocol import Location


def check_written(dataset: h5py.Dataset, table: ChunkTable | None, stored: Box, subject: str) -> None:
    """Refuse values that were never written: HDF5 itself would hand out the fill value without a word.

    `table` is None where storage is contiguous.
    """
    if table is not None:
        check_chunks(table, stored, subject)
    elif dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_NOT_ALLOCATED:
        raise _unwritten(subject, "no value ever written")


def check_chunks(table: ChunkTable, stored: Box, subject: str) -> None:
    """Refuse values of chunks that were never written."""
    absent = table.first_missing(stored)
    if absent is not None:
        raise _unwritten(subject, f"chunk {absent} never written")


def _unwritten(subject: str, found: str) -> DataError:
    return DataError(
        subject,
        found=found,
        expected="every value stored",
        remedy='finish writing the file, or read a volume with missing="fill" (convert --missing fill)',
    )


def check_own_storage(dataset: h5py.Dataset, subject: str) -> None:
    """Refuse a dataset whose values lie in other files, for readers that do not look after these."""
    if dataset.is_virtual or dataset.external:
        kind = "virtual" if dataset.is_virtual else "external"
        raise UsageError(
            subject,
            found=f"{kind} storage, whose missing files HDF5 replaces by fill values",
            remedy="read its source files, or copy it with h5repack first",
        )


def check_own_file(dataset: h5py.Dataset, file: h5py.File, subject: str) -> None:
    """Refuse a dataset that a link leads to in another file: what is known of `file` says nothing about that one."""
    other = h5py.h5f.get_name(dataset.id)
    if other == h5py.h5f.get_name(file.id):
        return
    # One file may be open by several names. Not asked first: the answer comes with sizes, for which chunks are counted.
    if h5py.h5o.get_info(dataset.id).fileno != h5py.h5o.get_info(file.id).fileno:
        raise UsageError(
            subject,
            found=f"a link to another file, {os.fsdecode(other)}:{dataset.name.removeprefix('/')}",
            expected="a dataset of the file itself",
            remedy="name that file and dataset instead",
        )


def filters_of(dataset: h5py.Dataset) -> list[tuple[int, str, tuple[int, ...]]]:
    """Return (id, name, parameters) of the dataset's filters in the order of writing."""
    plist: Any = dataset.id.get_create_plist()
    rows = [plist.get_filter(index) for index in range(plist.get_nfilters())]
    return [(int(row[0]), row[3].decode(errors="replace").split(";")[0].strip(), row[2]) for row in rows]


def check_filters(dataset: h5py.Dataset, subject: str) -> None:
    """Refuse filters that are not installed, and parameters at which libhdf5 would crash."""
    filters = filters_of(dataset)
    for number, name, _ in filters:
        if not h5py.h5z.filter_avail(number) and importlib.util.find_spec("hdf5plugin"):
            importlib.import_module("hdf5plugin")
        if not h5py.h5z.filter_avail(number):
            raise UsageError(
                subject,
                found=f"filter {number} ({name}), which is not installed",
                remedy="pip install hdf5plugin",
            )
    check_parameters(subject, dataset, [(number, values) for number, _, values in filters])


def check_supported(dataset: h5py.Dataset, location: Location) -> None:
    """Refuse layouts whose missing parts HDF5 fills without a word, filters that are not installed, and packing."""
    check_own_storage(dataset, str(location))
    check_filters(dataset, str(location))
    check_unpacked(dataset, str(location))
