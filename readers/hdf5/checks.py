"""Checks of one HDF5 dataset before it is read: what HDF5 would fill, decode or crash at without a word.

Parameters: those of filters that libhdf5 and its plugins believe, checked before it decodes a chunk. They are kept
beside the dataset, and in files of the earlier versions without a checksum. Some count the elements of a chunk or the
bytes of one: decoders that run by a wrong count write beyond their buffers or divide by zero, and end the process.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import h5py

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.cfpacking import MOST_VALUES, NAMES, UNSIGNED, Packed, Packing, Unread, check_packing, packing_of
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.dataset import filters_of
from voxload.readers.hdf5.file import KINDS
from voxload.readers.protocol import Location

_ATOMIC = 1
_SCALE_OFFSET_VALUES = 20
_MOST_BLOSC2_AXES = 8
_Values = tuple[int, ...]


def check_parameters(subject: str, dataset: h5py.Dataset, filters: Sequence[tuple[int, _Values]]) -> None:
    """Refuse filter parameters that contradict the dataset.

    Parameters
    ----------
    subject
        File and dataset, for messages.
    dataset
        The dataset.
    filters
        Number and parameters of each of its filters.

    Raises
    ------
    DataError
        Naming the filter, when a decoder would go wrong with them.
    """
    if dataset.chunks is None:
        return
    elements, itemsize = prod(dataset.chunks), dataset.id.get_type().get_size()
    for number, values in filters:
        fits = _FITS.get(number)
        if fits is not None and not fits(values, elements, itemsize):
            raise DataError(
                subject,
                found=f"filter {number} with parameters {values}",
                expected=f"parameters for chunks of {elements} elements of {itemsize} bytes",
                remedy="copy or convert the file again: its metadata are damaged",
            )


def _szip(values: _Values, _elements: int, _itemsize: int) -> bool:
    """Tell whether blocks, scan lines and samples have sizes that libaec knows; source: HDF5 2.0, H5Zszip.c."""
    if len(values) != 4:
        return False
    _, block, bits, line = values
    return 0 < block <= 32 and block % 2 == 0 and block <= line <= 4096 and (0 < bits <= 32 or bits == 64)


def _nbit(values: _Values, elements: int, itemsize: int) -> bool:
    """Tell whether elements and their bits are those of numbers; source: HDF5 2.0, H5Znbit.c."""
    if len(values) >= 3 and values[0] == len(values) and values[1] == 1 and values[2] == elements:
        return True  # nothing is done
    if len(values) != 8 or values[0] != len(values) or values[1] or values[2] != elements or values[3] != _ATOMIC:
        return False
    _, _, _, _, size, order, precision, offset = values
    return size == itemsize and order in (0, 1) and precision > 0 and precision + offset <= 8 * size


def _scale_offset(values: _Values, elements: int, itemsize: int) -> bool:
    """Tell whether counts, class, sign and byte order are ones of the dataset; source: HDF5 2.0, H5Zscaleoffset.c."""
    if len(values) != _SCALE_OFFSET_VALUES or values[2] != elements or values[4] != itemsize:
        return False
    return values[0] in (0, 1, 2) and values[3] in (0, 1) and values[5] in (0, 1) and values[6] in (0, 1)


def _bitshuffle(values: _Values, _elements: int, itemsize: int) -> bool:
    """Tell whether elements have their size and blocks whole groups of eight; source: bitshuffle, bshuf_h5filter.c."""
    return len(values) >= 3 and values[2] == itemsize and (len(values) < 4 or values[3] % 8 == 0)


def _blosc2(values: _Values, elements: int, _itemsize: int) -> bool:
    """Tell whether the chunk's shape, where there is one, is all there; source: hdf5-blosc2, blosc2_filter.c."""
    if len(values) <= 8:
        return True
    return values[7] == len(values) - 8 <= _MOST_BLOSC2_AXES and prod(values[8:]) == elements


_FITS: dict[int, Callable[[_Values, int, int], bool]] = {
    4: _szip,
    5: _nbit,
    6: _scale_offset,
    32008: _bitshuffle,
    32026: _blosc2,
}
"""Filters by their registered number."""


_LONGEST_TEXT = 64
"""Bytes of a text of fixed length that is read."""


def packing(dataset: h5py.Dataset, subject: str, packed: Packed) -> tuple[Packing, ...]:
    """Return what a dataset's numbers stand for, of all channels, or nothing where they stand for themselves.

    Raises UsageError as `packing_of`, and where numbers stand for others though `packed` refuses that.
    """
    attributes = _packing_attributes(dataset)
    if not attributes:  # nearly always
        return ()
    if packed is Packed.REFUSED or (packed is Packed.KNOWN and not _is_netcdf(dataset)):
        check_packing(subject, attributes, dataset.dtype)
        return ()
    found = packing_of(subject, attributes, dataset.dtype)
    return () if found is None else (found,)


def _is_netcdf(dataset: h5py.Dataset) -> bool:
    """Tell whether a dataset is a variable of netCDF: its file says so, or its axes have dimension scales.

    Source: NetCDF-4 file format specification, "Creation Order" and "Dimensions"; HDF5 Dimension Scale specification.
    """
    root = h5py.h5g.open(h5py.h5i.get_file_id(dataset.id), b"/")
    return bool(h5py.h5a.exists(root, b"_NCProperties") or h5py.h5a.exists(dataset.id, b"DIMENSION_LIST"))


def scale_names(dataset: h5py.Dataset) -> list[str | None] | None:
    """Return the names of each axis' dimension scale, which are netCDF's dimensions; None where there are none."""
    if not h5py.h5a.exists(dataset.id, b"DIMENSION_LIST"):
        return None
    found: list[str | None] = []
    for axis in dataset.dims:
        name = axis[0].name if len(axis) else None
        found.append(None if name is None else str(name).rpartition("/")[2])
    return found


def _packing_attributes(dataset: h5py.Dataset) -> dict[str, Any]:
    """Return the attributes that may be packing.

    Costs a look for five names in the dataset's header, which libhdf5 has read already, or in the index of its
    attributes where these are many.
    """
    found = {}
    for name in NAMES:
        if h5py.h5a.exists(dataset.id, name.encode()):
            found[name] = _value(dataset, name)
    return found


def _value(dataset: h5py.Dataset, name: str) -> Any:
    """Return an attribute that is a few numbers, or a short text; what else it is, it stays unread.

    Nothing of another type is even asked for: references may lead anywhere, and a table may be larger than memory.
    """
    attribute: Any = h5py.h5a.open(dataset.id, name.encode())
    kind, shape = attribute.get_type(), attribute.shape
    if shape is None:
        return Unread("no value")
    if isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        return dataset.attrs[name] if prod(shape) <= MOST_VALUES else Unread(f"an array of shape {shape}")
    if isinstance(kind, h5py.h5t.TypeStringID):
        # A text of any length is no longer than its file.
        is_short = prod(shape) == 1 and (kind.get_size() <= _LONGEST_TEXT if not kind.is_variable_str() else True)
        return dataset.attrs[name] if is_short and name == UNSIGNED else Unread("text")
    return Unread(f"an attribute of {KINDS.get(kind.get_class(), 'another type')}")


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
    packing(dataset, str(location), Packed.REFUSED)
