"""OME-Zarr images: axes by their names, levels by number, and what a group claims is checked."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr

import voxload
from voxload.errors import DataError, UsageError
from voxload.readers import Location, open_reader

SHAPE = (2, 8, 12, 10)
"""(c, z, y, x) of the finest level."""


def level(number: int) -> npt.NDArray[Any]:
    """Return a level of the image."""
    factor = 2**number
    whole = np.random.default_rng(3).integers(0, 999, SHAPE).astype("<u2")
    return np.ascontiguousarray(whole[:, ::factor, ::factor, ::factor])


def image(path: Path, version: str = "0.5", **claims: Any) -> Path:
    """Write an image of three levels, as OME-Zarr says it in a version."""
    zarr_format: Any = 3 if version == "0.5" else 2
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    for number in range(3):
        data = level(number)
        array = group.create_array(str(number), shape=data.shape, chunks=(1, 4, 4, 4), dtype=data.dtype)
        array[...] = data
    axes: list[Any] = [{"name": name, "type": "space"} for name in "czyx"]
    said = {"axes": axes, "datasets": [{"path": str(number)} for number in range(3)], "version": version} | claims
    multiscales = claims.get("multiscales", [said])
    group.attrs.update(
        {"ome": {"version": "0.5", "multiscales": multiscales}} if version == "0.5" else {"multiscales": multiscales}
    )
    return path


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_an_image_keeps_the_laws(laws: ModuleType, tmp_path: Path, version: str) -> None:
    """A plain call reads the finest level, and its axes are known."""
    with closing(open_reader(Location(str(image(tmp_path / "i.zarr", version))))) as reader:
        laws.check_reader(reader, level(0))
        assert reader.describe().axes == "CDHW"


def test_levels_are_chosen_by_number_or_name(tmp_path: Path) -> None:
    """level= counts from the finest; an array of the image may be named, too."""
    path = image(tmp_path / "i.zarr")
    for number in range(3):
        for words in ({"level": number}, {"fields": {"x": str(number)}}):
            (x,) = voxload.VolumeDataset(path, **words)[0]
            assert np.array_equal(x.numpy(), level(number))
    for wrong in (3, -1):
        with pytest.raises(UsageError, match="0 to 2"):
            voxload.VolumeDataset(path, level=wrong)[0]
    with pytest.raises(UsageError, match="leave level out"):
        voxload.VolumeDataset(path, fields={"x": "1"}, level=1)[0]


def test_images_below_a_group(tmp_path: Path) -> None:
    """Labels are an image of their own inside the image."""
    path = image(tmp_path / "i.zarr", "0.4")
    image(tmp_path / "i.zarr" / "labels" / "cells", "0.4")
    data = voxload.VolumeDataset(path, fields={"x": "0", "y": "labels/cells"})
    x, y = data[0]
    assert np.array_equal(x.numpy(), y.numpy())


def test_time_has_to_be_spoken_of(tmp_path: Path) -> None:
    """Names tell that there are time steps; what an item is, the user says."""
    group = zarr.open_group(tmp_path / "t.zarr", mode="w")
    values = np.arange(3 * 2 * 4 * 4, dtype="<i2").reshape(3, 2, 4, 4)
    group.create_array("v", data=values, dimension_names=("time", "level", "lat", "lon"))
    with pytest.raises(UsageError, match='say axes="TDHW"'):
        voxload.VolumeDataset(tmp_path / "t.zarr", fields={"x": "v"})[0]
    (x,) = voxload.VolumeDataset(tmp_path / "t.zarr", fields={"x": "v"}, axes="TDHW")[2]
    assert np.array_equal(x[0].numpy(), values[2])


@pytest.mark.parametrize("how", ["labels", "scales", "xarray2", "xarray3"])
def test_names_of_dimensions_tell_the_axes(tmp_path: Path, how: str) -> None:
    """HDF5's labels, netCDF's dimensions and xarray's: a cube stored (lon, lat, depth) is turned."""
    names, values = ("lon", "lat", "depth"), np.arange(60, dtype="<i4").reshape(3, 4, 5)
    if how in ("labels", "scales"):
        path = tmp_path / "v.h5"
        with h5py.File(path, "w") as file:
            file["v"] = values
            for axis, name in enumerate(names):
                if how == "labels":
                    file["v"].dims[axis].label = name
                else:
                    file[name] = np.arange(values.shape[axis])
                    file[name].make_scale(name)
                    file["v"].dims[axis].attach_scale(file[name])
    else:
        path = tmp_path / "v.zarr"
        version: Any = 2 if how == "xarray2" else 3
        group = zarr.open_group(path, mode="w", zarr_format=version)
        named = names if version == 3 else None
        array = group.create_array("v", data=values, dimension_names=named)
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = list(names)
    with closing(open_reader(Location(str(path), "v"))) as reader:
        info = reader.describe()
        assert (info.axes, info.spatial) == ("WHD", (5, 4, 3))
        out = np.empty(info.shape, info.native_dtype)
        reader.read_into(info.whole, out)
    assert np.array_equal(out[0], values.transpose())


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"multiscales": []}, "0 images"),
        ({"multiscales": [{}, {}]}, "2 images"),
        ({"multiscales": "none"}, "0 images"),
        ({"datasets": []}, "datasets"),
        ({"datasets": [{"path": "../../secret"}]}, "names of arrays"),
        ({"datasets": [{"path": "/etc"}]}, "datasets|no array"),
        ({"datasets": [{"path": 3}]}, "names of arrays"),
        ({"datasets": [{"path": "7"}]}, "no array '7'"),
        ({"axes": [1, 2, 3, 4]}, "axes"),
    ],
)
def test_what_a_group_claims_is_checked(tmp_path: Path, claims: dict[str, Any], said: str) -> None:
    """No name leads out of the group, and nothing that is no image is guessed to be one."""
    path = image(tmp_path / "i.zarr", **claims)
    with pytest.raises(DataError, match=said):
        open_reader(Location(str(path)))


def test_levels_of_what_has_none_are_refused(tmp_path: Path) -> None:
    """Never ignored."""
    np.save(tmp_path / "x.npy", np.zeros((4, 4, 4)))
    zarr.create_array(tmp_path / "x.zarr", data=np.zeros((4, 4, 4)))
    for name in ("x.npy", "x.zarr"):
        with pytest.raises(UsageError, match="leave level out"):
            voxload.VolumeDataset(tmp_path / name, level=1)[0]
