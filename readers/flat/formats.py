"""Flat formats: files of one array, with the header of .npy or with none."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np

from voxload.errors import DataError, UsageError
from voxload.files.regular import open_regular
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated
from voxload.readers.flat.arrayfile import ArrayFileReader, ArrayLayout
from voxload.readers.foreign import foreign_error, member_error, npz_error
from voxload.readers.protocol import Location, Missing, Vector, parse_dtype, refuse_vector

_MAGIC = b"\x93NUMPY"
_MOST_HEADER = 10_000
"""Bytes of the longest header that numpy reads; it would take memory for any length before it looks."""


class NpyFormat:
    """One array a file; pickled objects are refused."""

    name = "npy"

    def claims(self, path: str) -> bool:
        """Tell whether the file starts with numpy's magic string."""
        if not os.path.isfile(path):  # noqa: PTH113 - a Path takes longer to make than to ask
            return False
        with open_regular(path, buffering=0) as file:
            return file.read(len(_MAGIC)) == _MAGIC

    def datasets(self, path: str) -> tuple[str, ...]:  # noqa: ARG002 - every npy file holds one array
        """Return one unnamed array."""
        return ("",)

    def open(self, location: Location, missing: Missing) -> ArrayFileReader:  # noqa: ARG002 - all voxels are there
        """Read the header; raises DataError when the file is shorter than it says."""
        with translated(str(location)):
            with open_regular(location.path) as file:
                layout = npy_layout(file)
            order = resolve_axes(
                str(location), ndim=len(layout.shape), given=location.axes, declared=None, has_lead=True
            )
        return ArrayFileReader(location, layout, order=order, format_name=self.name)

    def read_vector(self, path: str, name: str) -> Vector:
        """Refuse: the file holds one volume and nothing else."""
        return refuse_vector(path, name)


def npy_layout(file: BinaryIO) -> ArrayLayout:
    """Return how the array lies; raises ValueError at a header that is none, or that announces pickled objects.

    Source: NEP 1, and the later versions in numpy.lib.format: from 2.0 on the header's length takes four bytes, in 3.0
    its text is UTF-8, which types of numbers never need.
    """
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"npy version {version}")
    width = 2 if version == (1, 0) else 4
    length = file.read(width)
    if int.from_bytes(length, "little") > _MOST_HEADER:
        raise ValueError(f"a header of {int.from_bytes(length, 'little')} bytes")
    text = file.read(int.from_bytes(length, "little"))
    return replace(_parsed(length + text, width == 2), offset=file.tell())


@lru_cache(maxsize=64)
def _parsed(header: bytes, is_first: bool) -> ArrayLayout:
    """Return what a header says, by numpy; remembered, for files of one data set often have the same."""
    file = io.BytesIO(header)
    read_header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("pickled Python objects, which are not read")
    return ArrayLayout(shape, dtype, 0, is_fortran)


class RawFormat:
    """One array a file.

    The location's shape and axes are in C order, slowest first. A file in Fortran order, fastest first, is the
    same file with shape and axes turned round: (nx, ny, nz) with x fastest is shape (nz, ny, nx).
    """

    name = "raw"

    def claims(self, path: str) -> bool:
        """Tell whether there is a file at all: anything can be headerless binary."""
        return Path(path).is_file()

    def datasets(self, path: str) -> tuple[str, ...]:  # noqa: ARG002 - every raw file holds one array
        """Return one unnamed array."""
        return ("",)

    def open(self, location: Location, missing: Missing) -> ArrayFileReader:  # noqa: ARG002 - all voxels are there
        """Open the file; raises DataError unless its size is exactly what shape and dtype need.

        Without these it raises UsageError, which says what the file is where its format is known and not read.
        """
        if location.shape is None or location.dtype is None:
            known = foreign_error(location.path) or npz_error(location.path) or member_error(location.path)
            if known is not None:
                raise known
            raise UsageError(
                str(location),
                found="no known header",
                expected="HDF5, Zarr or npy, or a shape and a dtype",
                remedy="check that it is the right file, or say shape and dtype of headerless data",
            )
        dtype = parse_dtype(location, location.dtype)
        if dtype.hasobject or min(location.shape, default=1) < 1:
            raise UsageError(
                str(location),
                found=f"{dtype} {tuple(location.shape)}",
                expected="a type of numbers and extents of 1 or more",
            )
        with translated(str(location)):
            expected, found = prod(location.shape) * dtype.itemsize, Path(location.path).stat().st_size
            if expected != found:
                raise DataError(
                    str(location),
                    found=f"{found} bytes",
                    expected=f"{expected} for {dtype} {tuple(location.shape)}",
                    remedy="the file is truncated, has a header, or shape or dtype are wrong",
                )
            layout = ArrayLayout(tuple(location.shape), dtype)
            order = resolve_axes(
                str(location), ndim=len(layout.shape), given=location.axes, declared=None, has_lead=True
            )
        return ArrayFileReader(location, layout, order=order, format_name=self.name)

    def read_vector(self, path: str, name: str) -> Vector:
        """Refuse: the file holds one volume and nothing else."""
        return refuse_vector(path, name)
