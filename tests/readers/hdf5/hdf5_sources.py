"""A cube that lies in several files as a virtual or external HDF5 dataset, and what reading it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from voxload.errors import VoxloadError
from voxload.readers import Location, open_reader

CUBE = np.arange(1, 513, dtype="<i2").reshape(8, 8, 8)
HALVES = ("a.h5", "b.h5")
Array = np.ndarray[Any, Any]


def write(path: Path, values: Array, **options: Any) -> None:
    """Write a file of one dataset "x"."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, **options)


def link(path: Path, layout: h5py.VirtualLayout, fill: int = -9) -> Location:
    """Write a virtual dataset "x"."""
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("x", layout, fillvalue=fill)
    return Location(str(path), "x")


def halves(folder: Path, *, chunks: tuple[int, ...] | None = None, stop: int = 8) -> Location:
    """Write a cube whose halves lie in two files; planes from `stop` on have no source."""
    layout = h5py.VirtualLayout((8, 8, 8), "<i2")
    for name, start in zip(HALVES, (0, 4), strict=True):
        write(folder / name, CUBE[start : start + 4], chunks=chunks)
        end = min(start + 4, stop)
        layout[start:end] = h5py.VirtualSource(name, "x", (4, 8, 8))[: end - start]
    return link(folder / "v.h5", layout)


def external(folder: Path) -> Location:
    """Write a cube whose bytes lie in two raw files, the second of unlimited size."""
    parts = [folder / "a.raw", folder / "b.raw"]
    parts[0].write_bytes(CUBE.tobytes()[:300])
    parts[1].write_bytes(b"header" + CUBE.tobytes()[300:])
    with h5py.File(folder / "v.h5", "w") as file:
        listed = [(str(parts[0]), 0, 300), (str(parts[1]), 6, h5py.h5f.UNLIMITED)]
        file.create_dataset("x", (8, 8, 8), "<i2", external=listed)
    return Location(str(folder / "v.h5"), "x")


def outcome(location: Location, missing: str = "error") -> tuple[type[VoxloadError] | None, str]:
    """Open and read a whole volume; return what was raised."""
    try:
        read(location, missing)
    except VoxloadError as error:
        return type(error), str(error)
    return None, ""


def read(location: Location, missing: str = "error") -> Array:
    """Read a whole volume."""
    reader = open_reader(location, missing=missing)
    try:
        out = np.empty(reader.describe().shape, reader.describe().native_dtype)
        reader.read_into(reader.describe().whole, out)
    finally:
        reader.close()
    volume: Array = out[0]
    return volume
