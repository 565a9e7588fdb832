"""Coordinates on their way into the catalogue: what xarray and netCDF keep beside a variable, a number each voxel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import voxload
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, Hints, convert
from voxload.convert.write.catalogue import complete_volumes, is_catalogued
from voxload.errors import DataError

SHAPE = (4, 6, 8)
NAMES = ("level", "lat", "lon")
ALONG: dict[str, Any] = {
    "level": [1000.0, 850.0, 500.0, 100.0],
    "lat": np.linspace(90, -90, 6),
    "lon": np.arange(8) * 45.0,
}
COLUMNS = ("coordinates_d", "coordinates_h", "coordinates_w")
VOXELS = np.arange(np.prod(SHAPE), dtype="<f4").reshape(SHAPE)
HINTS = Hints(axes="DHW")


def as_zarr(path: Path, along: Mapping[str, Any] = ALONG, *, names: tuple[str, ...] = ("t",)) -> Path:
    """Write variables as xarray does."""
    group = zarr.create_group(path.with_suffix(".zarr"))
    for name in names:
        group.create_array(name, data=VOXELS, dimension_names=NAMES)
    for name, values in along.items():
        group.create_array(name, data=np.asarray(values), dimension_names=(name,))
    return path.with_suffix(".zarr")


def as_netcdf(path: Path, along: Mapping[str, Any] = ALONG, *, names: tuple[str, ...] = ("t",)) -> Path:
    """Write variables as netCDF-4 does; a dimension without a variable is a dataset without values."""
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        for name, extent in zip(NAMES, SHAPE, strict=True):
            if name in along:
                file[name] = np.asarray(along[name])
                file[name].make_scale(name)
            else:
                file.create_dataset(name, (extent,), "f4")
                file[name].make_scale(f"This is a netCDF dimension but not a netCDF variable. {extent:9d}")
        for variable in names:
            file[variable] = VOXELS
            for axis, name in enumerate(NAMES):
                file[variable].dims[axis].attach_scale(file[name])
    return path.with_suffix(".h5")


WAYS = {"zarr": as_zarr, "netcdf": as_netcdf}
each_way = pytest.mark.parametrize("way", WAYS)


def rows(path: Path, out: Path, **options: Any) -> tuple[Catalog, list[dict[str, Any]]]:
    """Convert a file; return its catalogue, and its rows, sorted by id."""
    catalog = Catalog.read(convert(path, out, options=ConvertOptions(hints=HINTS, **options)).catalog)
    return catalog, catalog.whole.to_pylist()


@each_way
def test_the_catalogue_has_what_the_file_has(tmp_path: Path, way: str) -> None:
    """A list for each axis; an item has it on request; what was converted again keeps it."""
    _, (row,) = rows(WAYS[way](tmp_path / "x"), tmp_path / "out")
    for column, name in zip(COLUMNS, NAMES, strict=True):
        assert np.array_equal(row[column], ALONG[name])
    data = voxload.VolumeDataset(tmp_path / "out", columns=["coordinates_h", "coordinates_w"])
    volume, lat, lon = data[0]
    assert np.array_equal(volume[0].numpy(), VOXELS)
    assert np.array_equal(lat.numpy(), ALONG["lat"])
    assert np.array_equal(lon.numpy(), ALONG["lon"])
    data.close()
    stored = next(path for path in (tmp_path / "out").iterdir() if path.suffix != ".parquet")
    again = Catalog.read(convert(stored, tmp_path / "again").catalog)
    assert again.whole.column("coordinates_d").to_pylist() == [row["coordinates_d"]]


@each_way
def test_parts_have_their_own(tmp_path: Path, way: str) -> None:
    """Samples that are cut out of a cube have the coordinates of their voxels."""
    catalog, found = rows(WAYS[way](tmp_path / "x"), tmp_path / "out", split=(2, 3, 8))
    assert len(found) == 4
    for row in found:
        d, h, w = row["origin"] or (0, 0, 0)
        assert np.array_equal(row["coordinates_d"], ALONG["level"][d : d + 2])
        assert np.array_equal(row["coordinates_h"], ALONG["lat"][h : h + 3])
        assert np.array_equal(row["coordinates_w"], ALONG["lon"][w : w + 8])
    again, _ = rows(next(iter(tmp_path.glob("x.*"))), tmp_path / "out", split=(2, 3, 8))
    assert again.whole.equals(catalog.whole)


@each_way
def test_what_is_none_is_left_out(tmp_path: Path, way: str) -> None:
    """Another length, numbers that are not finite, and nothing at all; no column says nothing."""
    odd = {"level": [1.0, np.nan, 2.0, 3.0], "lat": ALONG["lat"]}
    catalog, (row,) = rows(WAYS[way](tmp_path / "x", odd), tmp_path / "out")
    assert np.array_equal(row["coordinates_h"], ALONG["lat"])
    assert not {"coordinates_d", "coordinates_w"} & set(catalog.whole.column_names)
    bare, _ = rows(WAYS[way](tmp_path / "bare", {}), tmp_path / "bare out")
    assert not set(COLUMNS) & set(bare.whole.column_names)


def test_scales_that_are_gone_or_odd(tmp_path: Path) -> None:
    """A scale that was removed, one named beyond ASCII, and one of texts: the volume is converted all the same."""
    path = as_netcdf(tmp_path / "x")
    with h5py.File(path, "r+") as file:
        del file["level"]
        file["lat"].attrs["NAME"] = "Breite °N"
        file["t"].dims[2].detach_scale(file["lon"])
        file["names"] = np.array([b"a"] * 8)
        file["names"].make_scale("names")
        file["t"].dims[2].attach_scale(file["names"])
    _, (row,) = rows(path, tmp_path / "out")
    assert np.array_equal(row["coordinates_h"], ALONG["lat"])
    assert not {"coordinates_d", "coordinates_w"} & set(row)


def test_names_lead_nowhere_else(tmp_path: Path) -> None:
    """A dimension that is called as a place outside of the hierarchy has no coordinates, whatever lies there."""
    zarr.create_array(tmp_path / "secret.zarr", data=np.arange(4.0))
    path = tmp_path / "in" / "x.zarr"
    group = zarr.create_group(path)
    names = ("../../secret.zarr", "..", str(tmp_path / "secret.zarr"))
    group.create_array("t", data=VOXELS, dimension_names=names)
    _, (row,) = rows(path, tmp_path / "out")
    assert not set(COLUMNS) & set(row)
    with h5py.File(tmp_path / "in" / "y.h5", "w") as file:
        (tmp_path / "secret.bin").write_bytes(np.arange(4.0).tobytes())
        file["t"] = VOXELS
        file.create_dataset("level", (4,), "f8", external=[(str(tmp_path / "secret.bin"), 0, 32)])
        file["level"].make_scale("level")
        file["t"].dims[0].attach_scale(file["level"])
    _, (row,) = rows(tmp_path / "in" / "y.h5", tmp_path / "hdf5 out")
    assert not set(COLUMNS) & set(row)


@each_way
def test_tasks_know_their_catalogue(tmp_path: Path, way: str) -> None:
    """One that was stored is the one that would be written, with a column of somebody's too; another one is not."""
    catalog, _ = rows(WAYS[way](tmp_path / "x"), tmp_path / "out")
    complete = complete_volumes(tmp_path / "out")
    for table, is_same in (
        (catalog.whole, True),
        (catalog.whole.append_column("note", pa.array(["mine"])), True),
        (catalog.whole.drop_columns("coordinates_h"), False),
    ):
        pq.write_table(table, tmp_path / "out" / CATALOG_NAME)
        assert is_catalogued(tmp_path / "out", complete, summed=(), checksums="") == is_same


@pytest.mark.long
def test_packed_and_damaged_ones(tmp_path: Path) -> None:
    """Packed numbers are not what they mean, and are left out; a chunk that is gone is an error."""
    packed = as_zarr(tmp_path / "packed")
    zarr.open_group(packed)["lat"].update_attributes({"scale_factor": 0.5})
    _, (row,) = rows(packed, tmp_path / "out")
    assert "coordinates_h" not in row
    broken = as_zarr(tmp_path / "broken")
    (broken / "lat" / "c" / "0").unlink()
    with pytest.raises(DataError, match="lat"):
        rows(broken, tmp_path / "broken out")


@each_way
def test_stacked_variables_have_what_they_share(tmp_path: Path, way: str) -> None:
    """One grid's coordinates are the stack's."""
    path = WAYS[way](tmp_path / "x", names=("u", "v"))
    found = convert(path, tmp_path / "out", options=ConvertOptions(hints=HINTS, stack={"wind": ("u", "v")}))
    (row,) = Catalog.read(found.catalog).whole.to_pylist()
    assert np.array_equal(row["coordinates_w"], ALONG["lon"])


def test_catalogues_keep_columns_of_others(tmp_path: Path) -> None:
    """What is written again has every column that it was given."""
    catalog, _ = rows(as_zarr(tmp_path / "x"), tmp_path / "out")
    catalog.write(tmp_path / "out" / "copy.parquet")
    assert Catalog.read(tmp_path / "out" / "copy.parquet").whole.equals(catalog.whole)
