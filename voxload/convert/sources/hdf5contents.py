"""Hdf5Tree: what an HDF5 file says of its groups and datasets, read when it is asked for.

A file may hold any number of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import h5py
import numpy as np

from voxload.readers.axes import Names
from voxload.readers.faults import translated
from voxload.readers.hdf5.checks import scale_names
from voxload.readers.hdf5.file import object_names, open_file

T = TypeVar("T")

_VOLUME_AXES = (3, 4)
_LARGEST_ATTRIBUTE = 64
"""Values of an attribute that are worth keeping; longer ones are tables."""


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
    coordinates: tuple[str, ...] = ()
    """Names of the one-dimensional datasets that are attached to the axes, empty strings where there are none."""
    dimensions: Names = None
    """Names of the axes' dimension scales, netCDF's dimensions; None where there are none."""

    @property
    def namings(self) -> tuple[Names, Names]:
        """The ways in which the file names the axes: labels, and dimensions, as a data set looks at them."""
        return self.scales, self.dimensions


@dataclass(frozen=True, slots=True)
class Hdf5Tree:
    """What an HDF5 file holds, without its voxels."""

    attributes: Mapping[str, Any]
    """Attributes of the root group."""
    groups: Mapping[str, Mapping[str, Any]]
    """Attributes of every other group, by name."""
    datasets: Mapping[str, Hdf5Dataset]
    """Every dataset, by name."""

    @classmethod
    def read(cls, path: Path) -> Hdf5Tree:
        """List a file; raises DataError when it is truncated or damaged, or holds more than is listed."""
        with translated(f"{path}"), open_file(str(path)) as file:
            groups, datasets = object_names(file)
            # A dataset without extents, which HDF5 calls null, is none here.
            kept = [name for name in datasets if _has_extents(file, name)]
            return cls(_attributes(file), _Facts(path, groups, _attributes), _Facts(path, kept, _dataset))


class _Facts(Mapping[str, T], Generic[T]):
    """Facts by name, each read once: one by one, or all in one pass over the file; for one thread.

    Parameters
    ----------
    path
        The file.
    names
        Names of objects in it.
    read
        Returns what is known of an object.
    """

    def __init__(self, path: Path, names: Sequence[str], read: Callable[[Any], T]) -> None:
        self._path, self._read = path, read
        self._known: dict[str, T | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> T:
        known = self._known[name]
        return self._load([name]) if known is None else known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def items(self) -> ItemsView[str, T]:
        """Return all facts."""
        self._load_all()
        return super().items()

    def values(self) -> ValuesView[T]:
        """Return all facts."""
        self._load_all()
        return super().values()

    def _load_all(self) -> None:
        left = [name for name, known in self._known.items() if known is None]
        if left:
            self._load(left)

    def _load(self, names: Sequence[str]) -> T:
        with translated(f"{self._path}"), open_file(str(self._path)) as file:
            for name in names:
                self._known[name] = found = self._read(file[os.fsencode(name)])
            return found


def _has_extents(file: h5py.File, name: str) -> bool:
    space = h5py.h5d.open(file.id, os.fsencode(name)).get_space()
    return bool(space.get_simple_extent_type() != h5py.h5s.NULL)


def _dataset(item: h5py.Dataset) -> Hdf5Dataset:
    labels = tuple(dimension.label for dimension in item.dims) if len(item.attrs) else ("",) * item.ndim
    along, dimensions = _coordinates(item), scale_names(item)
    return Hdf5Dataset(item.shape, item.dtype, item.chunks, _attributes(item), labels, along, dimensions)


_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
"""How the attribute NAME of a dimension's dataset begins that holds nothing. Source: netCDF-4's specification."""


def _coordinates(item: h5py.Dataset) -> tuple[str, ...]:
    """Return what is attached to each axis of a volume."""
    if item.ndim not in _VOLUME_AXES or "DIMENSION_LIST" not in item.attrs:
        return ()
    return tuple(_scale(item, axis) for axis in range(item.ndim))


def _scale(item: h5py.Dataset, axis: int) -> str:
    """Return the numbers that are attached to an axis; none where they were removed, which leaves the axis as it is."""
    try:
        scale: Any = item.dims[axis][0] if len(item.dims[axis]) else None
        if scale is None or scale.ndim != 1 or scale.dtype.kind not in "biuf":
            return ""
        said = scale.attrs.get("NAME", "")
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        return "" if text.startswith(_NO_VARIABLE) else str(scale.name or "").lstrip("/")
    except (KeyError, ValueError, RuntimeError, OSError):
        return ""


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
