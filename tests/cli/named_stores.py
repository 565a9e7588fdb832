"""Named stores: stores that name their axes, levels and packing, as zarr-python, xarray and netCDF write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import xarray
import zarr

EXTENTS = {"n": 2, "t": 3, "c": 2, "z": 6, "y": 8, "x": 12}
PACKED = {"scale_factor": 0.25, "add_offset": -3.0, "_FillValue": -999}
TIMED = ("time", "level", "lat", "lon")


def numbers(axes: str) -> npt.NDArray[np.uint16]:
    """Return numbers of an array with these axes."""
    shape = [EXTENTS[axis] for axis in axes]
    return np.random.default_rng(7).integers(0, 999, shape).astype("<u2")


def ome(path: Path, axes: str, version: str) -> Path:
    """Write an OME-Zarr image of three levels, each half as wide as the one before."""
    zarr_format: Any = 3 if version == "0.5" else 2
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    whole = numbers(axes)
    for number in range(3):
        data = np.ascontiguousarray(whole[..., :: 2**number])
        chunks = tuple(1 if axis in "ntc" else 4 if axis != "x" else 3 for axis in axes)
        array = group.create_array(str(number), shape=data.shape, chunks=chunks, dtype=data.dtype)
        array[...] = data
    named = [{"name": axis, "type": {"t": "time", "c": "channel"}.get(axis, "space")} for axis in axes]
    said: Any = [{"axes": named, "datasets": [{"path": str(number)} for number in range(3)], "version": "0.4"}]
    group.attrs.update({"ome": {"version": "0.5", "multiscales": said}} if version == "0.5" else {"multiscales": said})
    return path


def _ome_in(folder: Path, *, axes: str, version: str) -> Path:
    return ome(folder / "i.zarr", axes, version)


def variables_of(names: tuple[str, ...], **variables: Any) -> xarray.Dataset:
    """Return one variable with missing numbers, and further ones."""
    shape = [{"time": 4, "level": 3, "lat": 8, "lon": 10}[name] for name in names]
    rng = np.random.default_rng(5)
    found = {"temp": (names, np.where(rng.random(shape) < 0.1, np.nan, rng.random(shape) * 100).astype("f8"))}
    return xarray.Dataset(found | {name: (names, rng.random(shape).astype("f4")) for name in variables})


def as_zarr(path: Path, names: tuple[str, ...], zarr_format: int, **variables: Any) -> Path:
    """Write packed numbers as xarray does, and further variables."""
    encoding = {"temp": {"dtype": "i2", **PACKED}}
    variables_of(names, **variables).to_zarr(path, zarr_format=zarr_format, encoding=encoding, consolidated=False)
    return path


def as_netcdf(path: Path, names: tuple[str, ...], **variables: Any) -> Path:
    """Write a netCDF-4 file as its library does: dimensions are scales, which variables are attached to."""
    data = variables_of(names, **variables)
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = np.arange(data.sizes[name], dtype="f8")
            file[name].make_scale(name)
        for key in map(str, data):
            values = data[key].to_numpy()
            if key == "temp":
                stored = np.round((values - PACKED["add_offset"]) / PACKED["scale_factor"])
                values = np.where(np.isnan(values), PACKED["_FillValue"], stored).astype("<i2")
            file[key] = values
            file[key].attrs.update({name: np.array(value) for name, value in PACKED.items()} if key == "temp" else {})
            for axis, name in enumerate(names):
                file[key].dims[axis].attach_scale(file[name])
    return path


def npy(path: Path, axes: str) -> Path:
    """Write an array without names."""
    np.save(path, numbers(axes))
    return path


def unnamed(path: Path) -> Path:
    """Write what no file format's names help with: packed numbers without dimensions."""
    with h5py.File(path, "w") as file:
        file["v"] = np.arange(6 * 8 * 12, dtype="<i2").reshape(6, 8, 12)
        file["v"].attrs["scale_factor"] = 0.5
    return path


Store = tuple[Callable[[Path], Path], str]
STORES: dict[str, Store] = {
    **{
        f"ome {version} {axes}": (partial(_ome_in, axes=axes, version=version), "")
        for version in ("0.4", "0.5")
        for axes in ("tczyx", "czyx", "zyx")
    },
    "ome level": (lambda at: ome(at / "i.zarr", "czyx", "0.5"), "--level 2"),
    "ome level of a series": (lambda at: ome(at / "i.zarr", "tczyx", "0.4"), "--level 1 --axes TCDHW"),
    "ome array by name": (lambda at: ome(at / "i.zarr", "czyx", "0.4"), "--dataset 1"),
    "xarray v2": (lambda at: as_zarr(at / "x.zarr", TIMED, 2), ""),
    "xarray v3": (lambda at: as_zarr(at / "x.zarr", TIMED, 3), ""),
    "xarray, one of two": (lambda at: as_zarr(at / "x.zarr", TIMED, 3, hum=1), "--dataset temp"),
    "xarray, the other": (lambda at: as_zarr(at / "x.zarr", TIMED, 2, hum=1), "--dataset hum --axes TDHW"),
    "xarray, no time": (lambda at: as_zarr(at / "x.zarr", TIMED[1:], 3), ""),
    "xarray, turned": (lambda at: as_zarr(at / "x.zarr", ("lon", "lat", "level"), 3), ""),
    "xarray, planes": (lambda at: as_zarr(at / "x.zarr", ("time", "lat", "lon"), 3), ""),
    "xarray, stored": (lambda at: as_zarr(at / "x.zarr", TIMED, 3), "--decode stored"),
    "netCDF": (lambda at: as_netcdf(at / "x.nc", TIMED), ""),
    "netCDF, one of two": (lambda at: as_netcdf(at / "x.nc", TIMED, hum=1), "--dataset temp"),
    "netCDF, turned": (lambda at: as_netcdf(at / "x.nc", ("lon", "lat", "level")), ""),
    "netCDF, planes": (lambda at: as_netcdf(at / "x.nc", ("time", "lat", "lon")), ""),
    "packed without names": (lambda at: unnamed(at / "u.h5"), "--decode cf"),
    "npy T": (lambda at: npy(at / "a.npy", "tczyx"), "--axes TCDHW"),
    "npy N": (lambda at: npy(at / "a.npy", "nzyx"), "--axes ndhw"),
    "npy N T": (lambda at: npy(at / "a.npy", "ntzyx"), "--axes NTDHW"),
    "npy turned": (lambda at: npy(at / "a.npy", "zyxt"), "--axes DHWT"),
}
"""How a store is written, and what the command has to be told."""
