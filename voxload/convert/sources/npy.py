"""NpySource: one cube in a .npy file, in C or Fortran order."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from voxload.convert.sources.flat import describe_flat, stored_file
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, ReadInto, Source
from voxload.errors import DataError, UsageError
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated


class Npy:
    """Arrays that numpy saved."""

    name = "npy"
    is_generic = True

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file begins with numpy's magic string."""
        return probe.head.startswith(npy_format.MAGIC_PREFIX)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube."""
        return (NpySource(probe.path, hints.axes),)


class NpySource:
    """A three-axis (D, H, W) cube, or a four-axis one whose axes the caller names.

    Parameters
    ----------
    path
        The file.
    axes
        Order of the axes of the array, as ``numpy.load(path).shape`` shows them; None for (D, H, W).

    Raises
    ------
    UsageError
        When four axes have no names, or the type is no number.
    DataError
        When the header is damaged or the file's length does not fit it.
    """

    def __init__(self, path: Path, axes: str | None = None) -> None:
        shape, is_fortran, dtype, offset = _header(path)
        if len(shape) == 4 and axes is None:
            raise UsageError(
                f"{path}",
                found=f"four axes without names, shape {shape}",
                expected="to know which one holds the channels",
                remedy="add --axes CDHW for channels first or --axes DHWC for channels last",
            )
        order = resolve_axes(f"{path}", ndim=len(shape), given=axes, declared=None)
        self._file = stored_file(path, offset, shape=shape, dtype=dtype, order=order, is_fortran=is_fortran)

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return describe_flat(self._file)

    def open(self) -> AbstractContextManager[ReadInto]:
        """Open the file for reading."""
        return self._file.open()


def _header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, dtype and length of the header. Source: NEP 1, versions 1.0 and 2.0."""
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    with translated(f"{path}"), path.open("rb") as file:
        version = npy_format.read_magic(file)
        if version not in readers:
            raise DataError(f"{path}", found=f"npy version {version}", expected="an array of numbers, version 1 or 2")
        shape, is_fortran, dtype = readers[version](file)
        return tuple(shape), bool(is_fortran), dtype, file.tell()
