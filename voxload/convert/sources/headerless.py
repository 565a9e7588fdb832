"""headerless_file: where the cube lies in a file without a header, of a format whose names say what it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from voxload.convert.sources.flat import FlatFile, stored_file
from voxload.convert.sources.hints import Headerless, Hints, MemoryOrder
from voxload.readers.axes import resolve_axes


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
