"""Positions: bytes and numbers at a place in a file, read whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError


def read_at(path: Path, descriptor: int, *, offset: int, length: int) -> bytearray:
    """Return `length` bytes of an open file; raises DataError where the file ends before."""
    content = bytearray(length)
    view, done = memoryview(content), 0
    while done < length:
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if not count:
            raise DataError(
                f"{path}",
                found=f"the end of the file at byte {offset + done}",
                expected=f"{length - done} bytes more",
                remedy="the file is truncated: copy it again",
            )
        done += count
    return content


def native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the same numbers in this machine's byte order."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def runs(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the half-open runs of at most `size` that make up `count`."""
    for first in range(0, count, size):
        yield first, min(first + size, count)


def check_masses(path: Path, masses: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return masses as float64; raises DataError when one is negative or no number."""
    found = native(masses).astype(np.float64, copy=False)
    is_bad = ~(np.isfinite(found) & (found >= 0))
    if is_bad.any():
        raise DataError(f"{path}", found=f"mass {found[is_bad][0]}", expected="finite masses of 0 or more")
    return found


def mass_of(masses: npt.NDArray[np.float64], count: int) -> float:
    """Return the mass of `count` particles; `masses` has one for each or one for all."""
    return float(masses[0]) * count if len(masses) == 1 else float(masses.sum())
