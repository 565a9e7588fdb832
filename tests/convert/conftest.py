"""Raw cubes whose voxels encode their own coordinates, in every form that can be converted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr

from voxload.catalog.table import Catalog

Array = npt.NDArray[Any]


def _coordinates(shape: tuple[int, ...], dtype: str = "<i4") -> Array:
    """Return a (C, D, H, W) array in which voxel (c, d, h, w) holds its own running number."""
    return np.arange(np.prod(shape)).astype(dtype).reshape(shape)


def _write_universe(path: Path, volume: Array, *, axes: str = "DHWC", targets: object = (0.1, 0.2, 0.3, 0.4)) -> Path:
    """Write a raw universe: the (C, D, H, W) `volume` turned to `axes`, and its parameters."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["full"] = volume.transpose(["CDHW".index(axis) for axis in axes])
        file["unitPar"] = np.array(targets, dtype="<f4")
    return path


def _converted(catalog: Path, sample: str) -> Array:
    """Return a converted volume through h5py or zarr-python alone, from what the catalogue says."""
    table = Catalog.read(catalog)
    entry = table.entry(sample, table.datasets[0])
    path = catalog.parent / entry.path
    if path.is_dir():
        return np.asarray(zarr.open_array(path / entry.dataset, mode="r")[...])
    with h5py.File(path, "r") as file:
        return np.asarray(file[entry.dataset][...])


def _visible(folder: Path) -> list[str]:
    """Return what is in a folder, hidden or not, sorted."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def coordinates() -> Callable[..., Array]:
    """Give the maker of coordinate-encoded volumes."""
    return _coordinates


@pytest.fixture
def write_universe() -> Callable[..., Path]:
    """Give the writer of raw universes."""
    return _write_universe


@pytest.fixture
def converted() -> Callable[[Path, str], Array]:
    """Give the independent reader of converted volumes."""
    return _converted


@pytest.fixture
def visible() -> Callable[[Path], list[str]]:
    """Give the lister of a folder's content."""
    return _visible
