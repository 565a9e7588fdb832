"""Headerless binary, whose shape, type and order the caller, a name or the size must say."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from voxload.convert.sources.binary.flat import FlatFile, describe_flat, stored_file
from voxload.convert.sources.hints import Headerless, Hints, MemoryOrder
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, ReadInto
from voxload.errors import UsageError
from voxload.readers.axes import AxisOrder, resolve_axes

_SIGNATURES = (b"\x93NUMPY", b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SIMPLE  =", b"CDF", b"\x89PNG", b"%PDF")
"""How files of numpy, zip, gzip, zstd, FITS, netCDF and of no data at all begin."""


def exact_cube_root(count: int) -> int | None:
    """Return the extent of a cube of `count` voxels; None where there is no such cube.

    >>> exact_cube_root(128**3), exact_cube_root(128**3 + 1)
    (128, None)
    """
    near = round(count ** (1 / 3)) if count > 0 else 0
    return next((root for root in (near - 1, near, near + 1) if root > 0 and root**3 == count), None)


def has_signature(probe: Probe) -> bool:
    """Tell whether a file begins like one of a format with a header of its own: then it is not headerless."""
    return probe.is_hdf5 or probe.head.startswith(_SIGNATURES)


def headerless_file(path: Path, facts: Headerless, hints: Hints, *, declared: str = "DHW") -> FlatFile:
    """Return the cube in a file; what the caller says of shape, type and axes counts more than `facts`.

    Raises DataError unless the file has exactly the length that shape and type need, and UsageError when the caller's
    axes do not fit.
    """
    said = hints.headerless or facts
    is_told = hints.headerless is not None
    order = resolve_axes(f"{path}", ndim=len(said.shape), given=hints.axes, declared=None if is_told else declared)
    dtype, is_fortran = np.dtype(said.dtype), said.order is MemoryOrder.F
    return stored_file(path, said.header_bytes, shape=said.shape, dtype=dtype, order=order, is_fortran=is_fortran)


class RawSource:
    """A cube in a file that holds nothing else.

    Parameters
    ----------
    path
        The file.
    facts
        Shape, type and order.
    axes
        Order of the axes of ``facts.shape``; None for three axes (D, H, W).

    Raises
    ------
    UsageError
        When four axes have no names, or the type is no number.
    DataError
        Unless the file has exactly the length that shape and type need.
    """

    def __init__(self, path: Path, facts: Headerless, axes: str | None = None) -> None:
        expected = len(axes) if axes else 3
        if len(facts.shape) != expected:
            raise UsageError(
                f"{path}",
                found=f"shape {facts.shape} for axes {axes or 'DHW'}",
                expected="as many extents as axes",
                remedy="add --axes, such as --axes CDHW for channels first or --axes DHWC for channels last",
            )
        self._file = stored_file(
            path,
            facts.header_bytes,
            shape=facts.shape,
            dtype=np.dtype(facts.dtype),
            order=AxisOrder((axes or "DHW").upper()),
            is_fortran=facts.order is MemoryOrder.F,
        )

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return describe_flat(self._file)

    def open(self) -> AbstractContextManager[ReadInto]:
        """Open the file for reading."""
        return self._file.open()
