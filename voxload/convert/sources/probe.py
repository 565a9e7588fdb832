"""Probe: one file as the formats look at it: its first bytes, its lines of text, its HDF5 tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from voxload.convert.sources.hdf5contents import Hdf5Tree
from voxload.errors import DataError
from voxload.files.regular import open_regular
from voxload.readers.faults import translated
from voxload.readers.hdf5.file import find_superblock

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


def hdf5_tree(probe: Probe) -> Hdf5Tree:
    """Return what an HDF5 file holds; raises DataError when it is none."""
    if probe.hdf5 is None:
        raise DataError(f"{probe.path}", found="no HDF5 signature", expected="an HDF5 file")
    return probe.hdf5


def extents_of(probe: Probe, *names: str) -> tuple[tuple[int, ...], ...]:
    """Return the extents of datasets; empty unless the file is HDF5 and holds them all."""
    tree = probe.hdf5
    if tree is None or not set(names) <= set(tree.datasets):
        return ()
    return tuple(tree.datasets[name].shape for name in names)


_MOST_BYTES = 2**20
"""No header is longer; a damaged one must not make us read the voxels as text."""


def header_lines(path: Path, is_last: Callable[[bytes], bool]) -> tuple[list[bytes], int]:
    """Return the lines up to the last one of a header, or to the end of the file, and their length in bytes.

    Raises DataError when there is no last line within 1 MiB.
    """
    lines: list[bytes] = []
    length = 0
    with translated(f"{path}"), open_regular(path) as file:
        while line := file.readline(_MOST_BYTES):
            length += len(line)
            if length >= _MOST_BYTES:
                raise DataError(
                    f"{path}",
                    found="a header without an end",
                    expected="one shorter than 1 MiB",
                    remedy="copy it again",
                )
            lines.append(line)
            if is_last(line):
                break
    return lines, length
