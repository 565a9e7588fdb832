"""RawSource: headerless binary, whose shape, type and order the caller must say."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from voxload.convert.sources.flat import describe_flat, stored_file
from voxload.convert.sources.hints import Headerless, MemoryOrder
from voxload.convert.sources.protocol import RawCube, ReadInto
from voxload.errors import UsageError
from voxload.readers.axes import AxisOrder


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
