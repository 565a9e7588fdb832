"""Parameters: those of filters that libhdf5 and its plugins believe, checked before it decodes a chunk.

They are kept beside the dataset, and in files of the earlier versions without a checksum. Some count the elements of a
chunk or the bytes of one: decoders that run by a wrong count write beyond their buffers or divide by zero, and end the
process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import h5py

from voxload.errors import DataError

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
