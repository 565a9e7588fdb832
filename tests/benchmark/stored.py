"""Small samples in every format, for the tests of loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BytesCodec

from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry

Array = npt.NDArray[Any]

FORMATS = ("hdf5", "zarr2", "zarr3", "npy", "raw")
EXTENTS = {"C": 2, "D": 9, "H": 7, "W": 10}
CHUNKS = {"C": 1, "D": 4, "H": 4, "W": 4}
"""They cut no extent evenly."""
COUNT = 7


def store(form: str, folder: Path, *, axes: str = "CDHW", dtype: str = "<i2") -> str:
    """Write samples of random voxels and return what VolumeDataset finds them by; raw ones need a catalogue."""
    folder.mkdir()
    shape, chunks = (tuple(extents[axis] for axis in axes) for extents in (EXTENTS, CHUNKS))
    rng = np.random.default_rng(len(axes))
    entries = []
    for index in range(COUNT):
        voxels = rng.integers(1, 900, shape).astype(dtype)
        path, dataset = _write(form, folder / f"s{index}", voxels, chunks)
        entries.append(Entry(f"s{index}", path.name, dataset, shape, dtype, axes, stored_bytes=voxels.nbytes))
    Catalog.from_entries(entries, folder).write(folder / CATALOG_NAME)
    return str(folder)


def _write(form: str, stem: Path, voxels: Array, chunks: tuple[int, ...]) -> tuple[Path, str]:
    """Write one sample; return its path and the name of its dataset."""
    if form == "hdf5":
        path = stem.with_suffix(".h5")
        with h5py.File(path, "w") as file:
            file.create_dataset("full", data=voxels, chunks=chunks, compression="gzip", shuffle=True)
        return path, "full"
    if form == "zarr2":
        path = stem.with_suffix(".zarr")
        zarr.create_array(path, data=voxels, chunks=chunks, zarr_format=2)
        return path, ""
    if form == "zarr3":
        path = stem.with_suffix(".zarr")
        group = zarr.create_group(path)
        shards = tuple(2 * extent for extent in chunks)
        order = BytesCodec(endian="big" if voxels.dtype.byteorder == ">" else "little")
        group.create_array("full", data=voxels, chunks=chunks, shards=shards, serializer=order)
        return path, "full"
    if form == "npy":
        path = stem.with_suffix(".npy")
        np.save(path, voxels)
        return path, ""
    path = stem.with_suffix(".raw")
    voxels.tofile(path)
    return path, ""
