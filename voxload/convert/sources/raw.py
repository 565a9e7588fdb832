"""RawSource: headerless binary, whose shape, type and order the caller must say."""

from __future__ import annotations

import enum
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voxload.convert.sources.flat import describe_flat, stored_file
from voxload.convert.sources.protocol import RawCube, ReadInto
from voxload.errors import UsageError
from voxload.readers.axes import AxisOrder


class MemoryOrder(enum.StrEnum):
    """Which index of a shape runs fastest in the file."""

    C = "C"
    """The last one, as C and numpy write."""
    F = "F"
    """The first one, as Fortran writes."""


@dataclass(frozen=True, slots=True)
class Headerless:
    """What a headerless file cannot say of itself."""

    shape: tuple[int, ...]
    """Extents in the order of the caller's axes."""
    dtype: str
    """numpy type string with byte order, such as ``<f4``."""
    order: MemoryOrder = MemoryOrder.C
    """Which index runs fastest."""

    def __post_init__(self) -> None:
        if len(self.shape) not in (3, 4) or min(self.shape) < 1:
            raise UsageError("--shape", found=str(self.shape), expected="three or four extents of 1 or more")
        try:
            np.dtype(self.dtype)
        except TypeError:
            raise UsageError(
                "--dtype", found=repr(self.dtype), expected="a numpy type", remedy="write for example <f4 or int16"
            ) from None


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
            0,
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
