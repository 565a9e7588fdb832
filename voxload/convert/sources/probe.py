"""Probe: one file as the formats look at it; what one of them has read, the next does not read again."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from voxload.convert.sources.hdf5facts import Hdf5Tree
from voxload.readers.faults import translated
from voxload.readers.hdf5.file import find_superblock
from voxload.regular import open_regular

HEAD_BYTES = 4096
"""Bytes of a file that formats look at; the longest signature, of a FITS file, ends within the first 2880."""


class Probe:
    """One file; for one thread.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def head(self) -> bytes:
        """The first `HEAD_BYTES` bytes, or all of a shorter file; none of a folder."""
        if self.path.is_dir():
            return b""
        with translated(f"{self.path}"), open_regular(self.path) as file:
            return file.read(HEAD_BYTES)

    @cached_property
    def size(self) -> int:
        """Length of the file in bytes."""
        with translated(f"{self.path}"):
            return self.path.stat().st_size

    @cached_property
    def is_hdf5(self) -> bool:
        """Whether the file has an HDF5 superblock, behind a user block too."""
        with translated(f"{self.path}"):
            return self.path.is_file() and find_superblock(str(self.path)) is not None

    @cached_property
    def hdf5(self) -> Hdf5Tree | None:
        """What an HDF5 file holds; None for others. Raises DataError when it is truncated or damaged."""
        if not self.is_hdf5:
            return None
        return Hdf5Tree.read(self.path)
