"""Probe: one file as the formats look at it; what one of them has read, the next does not read again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from voxload.readers.faults import translated
from voxload.readers.hdf5.openfile import find_superblock, open_file

HEAD_BYTES = 4096
"""Bytes of a file that formats look at; the longest signature, of a FITS file, ends within the first 2880."""


@dataclass(frozen=True, slots=True)
class Hdf5Dataset:
    """What an HDF5 file says of one dataset."""

    shape: tuple[int, ...]
    """Extents as stored."""
    dtype: np.dtype[Any]
    """Stored type."""
    chunks: tuple[int, ...] | None
    """Extents of a chunk; None when contiguous."""
    attributes: Mapping[str, Any]
    """Attributes that are numbers, strings or small arrays of them; strings as str."""
    scales: tuple[str, ...] = ()
    """Labels of the axes, empty strings where there are none."""


@dataclass(frozen=True, slots=True)
class Hdf5Tree:
    """What an HDF5 file holds, without its voxels."""

    attributes: Mapping[str, Any]
    """Attributes of the root group."""
    groups: Mapping[str, Mapping[str, Any]]
    """Attributes of every other group, by name."""
    datasets: Mapping[str, Hdf5Dataset]
    """Every dataset, by name."""


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
        with translated(f"{self.path}"), self.path.open("rb") as file:
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
        groups: dict[str, Mapping[str, Any]] = {}
        datasets: dict[str, Hdf5Dataset] = {}

        def visit(stored: str | bytes, item: object) -> None:
            name = os.fsdecode(stored)  # h5py gives names that are no UTF-8 as bytes
            if isinstance(item, h5py.Group):
                groups[name] = _attributes(item)
            elif isinstance(item, h5py.Dataset) and item.shape is not None:
                labels = tuple(dimension.label for dimension in item.dims)
                datasets[name] = Hdf5Dataset(item.shape, item.dtype, item.chunks, _attributes(item), labels)

        with translated(f"{self.path}"), open_file(str(self.path)) as file:
            file.visititems(visit)
            return Hdf5Tree(_attributes(file), groups, datasets)


_LARGEST_ATTRIBUTE = 64
"""Values of an attribute that are worth keeping; longer ones are tables."""


def _attributes(item: Any) -> dict[str, Any]:
    """Return the small attributes of a group or dataset as plain values."""
    found: dict[str, Any] = {}
    for name in item.attrs:
        try:
            value = np.asarray(item.attrs[name])
        except (OSError, TypeError, ValueError):  # of a type that h5py does not know, such as a reference
            continue
        if value.size <= _LARGEST_ATTRIBUTE and value.dtype.kind in "biufSUO":
            found[os.fsdecode(name)] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    """Return an attribute as Python values: bytes as text."""
    if value.dtype.kind in "SO":
        texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in value.ravel()]
        return texts[0] if value.ndim == 0 else texts
    return value.tolist()
