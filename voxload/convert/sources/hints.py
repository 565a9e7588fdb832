"""Hints: what the caller says of files that do not say it themselves; Headerless, of those that say nothing."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from voxload.errors import UsageError
from voxload.readers.protocol import Missing


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
    header_bytes: int = 0
    """Bytes before the first voxel."""

    def __post_init__(self) -> None:
        if len(self.shape) not in (3, 4) or min(self.shape) < 1:
            raise UsageError("--shape", found=str(self.shape), expected="three or four extents of 1 or more")
        if self.header_bytes < 0:
            raise UsageError("--header-bytes", found=str(self.header_bytes), expected="0 or more")
        try:
            np.dtype(self.dtype)
        except TypeError:
            raise UsageError(
                "--dtype", found=repr(self.dtype), expected="a numpy type", remedy="write for example <f4 or int16"
            ) from None


@dataclass(frozen=True, slots=True)
class Hints:
    """What the caller knows of the files; the defaults let them speak for themselves."""

    axes: str | None = None
    """Order of the axes of each cube, slowest first, where the file does not say or the caller knows better."""
    headerless: Headerless | None = None
    """Shape, type and order of files without a header."""
    datasets: tuple[str, ...] = ()
    """Names of the datasets that are wanted, of files that hold several; empty for all that are volumes."""
    kind: str = ""
    """Name of the format, as ``docs/reference/formats.md`` lists it; empty to find out."""
    allow_outside: bool = False
    """Whether files that a header names, and links, may lead out of the folder that is converted."""

    missing: Missing = Missing.ERROR
    """Whether voxels that HDF5 and Zarr metadata call never written are an error, or have the fill value."""

    @property
    def within(self) -> str | None:
        """The same as `Location.within` says it of a file."""
        return None if self.allow_outside else ""
