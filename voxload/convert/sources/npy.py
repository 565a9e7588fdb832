"""Npy: one cube in a .npy file, in C or Fortran order; and the header of such a file, for those that hold more."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from voxload.convert.sources.flat import FlatFile, FlatSource, describe_flat, stored_file
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, UsageError
from voxload.readers.axes import AxisOrder, resolve_axes
from voxload.readers.faults import translated
from voxload.regular import open_regular


class Npy:
    """Arrays that numpy saved: a three-axis (D, H, W) cube, or a four-axis one whose axes the caller names."""

    name = "npy"
    is_generic = True

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file begins with numpy's magic string."""
        return is_npy(probe)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube.

        Raises
        ------
        UsageError
            When four axes have no names, or the type is no number.
        DataError
            When the header is damaged or the file's length does not fit it.
        """
        file = npy_file(probe.path, hints.axes)
        return (FlatSource(describe_flat(file), file),)


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What the header of an npy file says."""

    shape: tuple[int, ...]
    """Extents, as ``numpy.load(path).shape`` shows them."""
    is_fortran: bool
    """Whether the first index runs fastest."""
    dtype: np.dtype[Any]
    """Stored type."""
    length: int
    """Bytes of the header, which the first voxel follows."""

    @property
    def size(self) -> int:
        """Bytes of header and array."""
        return self.length + prod(self.shape) * self.dtype.itemsize


def is_npy(probe: Probe) -> bool:
    """Tell whether a file begins with numpy's magic string."""
    return probe.head.startswith(npy_format.MAGIC_PREFIX)


def npy_header(path: Path) -> NpyHeader:
    """Return the header of a file; raises DataError when it is damaged."""
    with translated(f"{path}"), open_regular(path) as file:
        return parse_header(f"{path}", file)


def parse_header(subject: str, file: IO[bytes]) -> NpyHeader:
    """Return the header that a stream stands before. Source: NEP 1, versions 1.0 and 2.0."""
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    version = npy_format.read_magic(file)
    if version not in readers:
        raise DataError(subject, found=f"npy version {version}", expected="an array of numbers, version 1 or 2")
    shape, is_fortran, dtype = readers[version](file)
    return NpyHeader(tuple(shape), bool(is_fortran), dtype, file.tell())


def npy_file(path: Path, axes: str | None = None) -> FlatFile:
    """Return the cube in a file, checked: its axes, its type and the file's length."""
    header = npy_header(path)
    order = npy_axes(f"{path}", header, axes)
    return stored_file(
        path, header.length, shape=header.shape, dtype=header.dtype, order=order, is_fortran=header.is_fortran
    )


def npy_axes(subject: str, header: NpyHeader, axes: str | None) -> AxisOrder:
    """Return the axes of an array as the caller names them, (D, H, W) for three without names."""
    if len(header.shape) == 4 and axes is None:
        raise UsageError(
            subject,
            found=f"four axes without names, shape {header.shape}",
            expected="to know which one holds the channels",
            remedy="add --axes CDHW for channels first or --axes DHWC for channels last",
        )
    return resolve_axes(subject, ndim=len(header.shape), given=axes, declared=None)
