"""``voxload info`` of stores that name their axes, levels and packing: it says what a data set makes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr

import voxload
from tests.cli.named_stores import STORES, TIMED, as_netcdf, as_zarr, npy, numbers, ome, unnamed, variables_of
from tests.support import processes
from tests.support.rangeserver import serving
from voxload.catalog import Catalog, Entry
from voxload.cli.inspect import planes as info_planes
from voxload.cli.inspect.subject import MANY
from voxload.cli.main import run
from voxload.errors import UsageError
from voxload.pictures.slices import Slices, draw_slices

LOADED = """
import sys
from voxload.cli.main import run
assert run(sys.argv[1:]) == 0
print("loaded", *sorted({"torch", "pyarrow"} & sys.modules.keys()))
"""


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["info", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("name", STORES)
def test_it_says_what_a_data_set_reads(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Number, shape and type of the items, and each rank's block, are those of the data set that it says to make."""
    write, words = STORES[name]
    path = write(tmp_path)
    found = _json([str(path), *words.split(), "--spatial", "1,2,2", "--halo", "1"], capsys)
    data = voxload.VolumeDataset(path, **found["options"])
    (item,) = data[0]
    assert len(data) == found["items"]
    assert list(item.shape) == found["shape"]
    assert item.numpy().dtype == np.dtype(found["item_dtype"])
    if not found["packing"]:
        assert np.dtype(found["dtype"]) == item.numpy().dtype
    for rank, said in enumerate(found["ranks"]):
        grid = voxload.ProcessGrid(spatial=(1, 2, 2), world_size=4, rank=rank)
        (block,) = voxload.VolumeDataset(path, grid=grid, halo=1, **found["options"])[len(data) - 1]
        size = np.dtype(found["dtype"]).itemsize
        assert [stop - start for start, stop in zip(said["start"], said["stop"], strict=True)] == [*block.shape[1:]]
        assert said["bytes_needed"] == block.numel() * size
    assert run(["info", str(path), *words.split()]) == 0
    printed = "".join(capsys.readouterr().out.split())
    call = "".join(f"VolumeDataset({json.dumps(str(path))}, ".split())
    assert (call in printed) == bool(found["options"])


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_levels_are_those_of_a_data_set(
    version: str, level: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The finest without a word; chunks and bytes are those of the array of the level."""
    path = ome(tmp_path / "i.zarr", "czyx", version)
    words = ["--level", str(level)] if level else []
    found = _json([str(path), *words], capsys)
    array = zarr.open_array(path / str(level), mode="r")
    assert (found["level"], found["levels"]) == (level, ["0", "1", "2"])
    assert (found["shape"], found["axes"], found["chunks"]) == (list(array.shape), "CDHW", list(array.chunks))
    assert found["decoded_bytes"] == array.nbytes
    assert found["options"] == ({"level": level} if level else {})
    assert run(["info", str(path), *words]) == 0
    assert f"{level} of 0 to 2 (array {level})" in capsys.readouterr().out


def test_levels_that_are_not_there_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a data set refuses them: beyond the coarsest, of one array of the image, and of what is no image."""
    path, plain = ome(tmp_path / "i.zarr", "czyx", "0.5"), npy(tmp_path / "a.npy", "zyx")
    xr = as_zarr(tmp_path / "x.zarr", TIMED, 3, hum=1)
    for words, said in (
        ([str(path), "--level", "3"], "found level 3, expected 0 to 2"),
        ([str(path), "--dataset", "1", "--level", "1"], "leave level out"),
        ([str(plain), "--level", "0"], "leave level out"),
        ([str(xr), "--level", "0"], "leave level out"),
    ):
        assert run(["info", *words]) == 2
        assert said in capsys.readouterr().err


def test_a_read_of_a_series_is_that_of_one_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A chunk of one time step costs a rank one chunk, and one of all steps all of it; of either the first is shown."""
    voxels = numbers("tzyx")
    for steps, chunks in ((1, 1), (3, 1)):
        path = tmp_path / f"{steps}.zarr"
        array = zarr.create_array(path, data=voxels, chunks=(steps, 6, 8, 12), compressors=None)
        (rank,) = _json([str(path), "--axes", "TDHW", "--spatial", "1,1,1"], capsys)["ranks"]
        assert (rank["chunks"], rank["bytes_needed"]) == (chunks, voxels[0].nbytes)
        assert rank["bytes_decoded"] == array.nbytes // 3 * steps


def test_packing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What stored numbers stand for, as xarray reads them; and what is stored where that is asked for."""
    path = as_zarr(tmp_path / "x.zarr", TIMED[1:], 3)
    found = _json([str(path)], capsys)
    packing = {"scale": 0.25, "offset": -3.0, "fills": [-999.0], "wraps": False}
    assert (found["packing"], found["dtype"], found["item_dtype"]) == ([packing], "<i2", "<f4")
    said = found["packing"][0]
    ((stored,), (item,)) = (voxload.VolumeDataset(path, decode=how)[0] for how in ("stored", "cf"))
    numbers = stored.numpy()
    mine = np.where(np.isin(numbers, said["fills"]), np.nan, numbers * said["scale"] + said["offset"])
    assert np.isnan(mine).any()
    np.testing.assert_array_equal(mine, item.numpy())
    assert run(["info", str(path)]) == 0
    assert "float32: stored * 0.25 - 3, NaN for -999" in capsys.readouterr().out
    found = _json([str(path), "--decode", "stored"], capsys)
    assert (found["packing"], found["item_dtype"], found["options"]) == ([], "<i2", {"decode": "stored"})
    assert run(["info", str(unnamed(tmp_path / "u.h5"))]) == 2
    assert "voxload info --decode cf" in capsys.readouterr().err
    assert run(["info", str(path), "--decode", "maybe"]) == 2


@pytest.mark.parametrize("kind", ["zarr", "netCDF"])
def test_several_variables_are_all_shown(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each as a data set reads it when it is named; ranks and pictures are of one."""
    write: Any = as_zarr if kind == "zarr" else as_netcdf
    path = write(tmp_path / "x", TIMED, *([2] if kind == "zarr" else []), hum=1)
    found = _json([str(path)], capsys)
    assert found["datasets"] == [array["dataset"] for array in found["arrays"]] == ["hum", "temp"]
    for array in found["arrays"]:
        data = voxload.VolumeDataset(path, **array["options"])
        (item,) = data[0]
        assert (len(data), list(item.shape)) == (array["items"], array["shape"])
        assert item.numpy().dtype == np.dtype(array["item_dtype"])
    assert run(["info", str(path)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("hum", "temp", "1x3x8x10", "TDHW"))
    for words in (["--spatial", "2,1,1"], ["--plot", str(tmp_path / "p.png")]):
        assert run(["info", str(path), *words]) == 2
        assert "--dataset" in capsys.readouterr().err


def test_urls_are_told_as_folders_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An image is one volume, and of a store of several variables all are shown, with what each is."""
    image, store = ome(tmp_path / "i.zarr", "czyx", "0.5"), as_zarr(tmp_path / "x.zarr", TIMED, 2, hum=1)
    zarr.consolidate_metadata(store)  # the server lists nothing
    with serving(tmp_path) as server:
        url = f"{server.url}/{image.name}"
        found = _json([url, "--level", "1"], capsys)
        (item,) = voxload.VolumeDataset(url, **found["options"])[0]
        assert (found["shape"], found["axes"]) == (list(item.shape), "CDHW")
        assert np.array_equal(item.numpy(), voxload.VolumeDataset(image, level=1)[0][0].numpy())
        several = _json([f"{server.url}/{store.name}"], capsys)["arrays"]
    local = _json([str(store)], capsys)["arrays"]
    assert several == local
    assert [array["items"] for array in several] == [4, 4]


def test_one_that_has_to_be_told_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wanted of it stands below the others; where it is wanted of all, it is the error."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["four"] = np.zeros((2, 4, 5, 6), "<i2")
        file["more"] = np.zeros((2, 4, 5, 6), "<i2")
        file["rho"] = np.zeros((4, 5, 6), "<f4")
    four, _, rho = _json([str(tmp_path / "x.h5")], capsys)["arrays"]
    assert (rho["shape"], rho["axes"]) == ([1, 4, 5, 6], "DHW")
    assert "(--axes CDHW)" in four["refusal"]
    with h5py.File(tmp_path / "x.h5", "a") as file:
        del file["rho"]
    assert run(["info", str(tmp_path / "x.h5")]) == 2
    assert "(--axes CDHW)" in capsys.readouterr().err


def test_arrays_of_more_axes_ask_for_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the command nor a data set finds an array of five axes before these are named; both say so."""
    xarray.Dataset({"v": (tuple("tczyx"), numbers("tczyx"))}).to_zarr(
        tmp_path / "x.zarr", zarr_format=3, consolidated=False
    )
    assert run(["info", str(tmp_path / "x.zarr")]) == 2
    assert "--axes TCDHW" in capsys.readouterr().err
    assert _json([str(tmp_path / "x.zarr"), "--axes", "TCDHW"], capsys)["items"] == 3
    np.savez(tmp_path / "x.npz", v=numbers("nzyx"))
    assert run(["info", str(tmp_path / "x.npz"), "--axes", "NDHW"]) == 2
    assert "VolumeDataset reads samples (N)" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"npz archive.*numpy\.save"):
        voxload.VolumeDataset(tmp_path / "x.npz", axes="NDHW")


def test_where_a_conversion_sees_other_axes_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A data set goes by the names of dimensions, a conversion by the format's layout, which calls depth x."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["format"] = "nyx-lyaf"
        file["native_fields/v"] = np.zeros((4, 5, 6), "<f4")
        for axis, name in enumerate("xyz"):
            file["native_fields/v"].dims[axis].label = name
    assert run(["info", str(path)]) == 0
    assert "reads its axes as WHD" in capsys.readouterr().out
    assert run(["info", str(path), "--axes", "WHD"]) == 0
    assert "reads its axes as" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["zarr v2", "zarr v3", "netCDF"])
def test_a_series_is_told_as_a_data_set_and_as_a_conversion_take_it(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One array with many items, of which a conversion makes samples; of several variables each."""
    for names, variables in (("one", {"hum": 1}), ("two", {"hum": 1, "rain": 1})):
        data = variables_of(TIMED, **variables).drop_vars("temp")
        path = tmp_path / f"{names}{'.nc' if kind == 'netCDF' else '.zarr'}"
        if kind == "netCDF":
            as_netcdf(path, TIMED, **variables)
            with h5py.File(path, "a") as file:
                del file["temp"]
        else:
            data.to_zarr(path, zarr_format=int(kind[-1]), consolidated=False)
        found = _json([str(path)], capsys)
        assert found["samples"] == 4
        assert [cube["shape"] for cube in found["cubes"]] == [[1, 3, 8, 10]] * 4 * len(variables)
        arrays = found.get("arrays", [found])
        assert [(array["items"], array["axes"]) for array in arrays] == [(4, "TDHW")] * len(variables)
        assert "refusal" not in found


@pytest.mark.parametrize("variables", [{"hum": 1}, {"hum": 1, "rain": 1}])
def test_a_long_series_is_not_listed(
    variables: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An hourly archive has hundreds of thousands of steps; what a data set makes of them is told all the same."""
    voxels = np.zeros((MANY + 1, 2, 2, 2), "i1")
    xarray.Dataset(dict.fromkeys(variables, (TIMED, voxels))).to_zarr(tmp_path / "x.zarr", consolidated=False)
    found = _json([str(tmp_path / "x.zarr")], capsys)
    assert "cubes" not in found
    assert {array["items"] for array in found.get("arrays", [found])} == {MANY + 1}


def test_what_a_conversion_refuses_a_data_set_still_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planes in time are items of a data set, and no volumes of a conversion, which says why."""
    path = as_zarr(tmp_path / "x.zarr", ("time", "lat", "lon"), 3, hum=1)
    found = _json([str(path), "--dataset", "hum"], capsys)
    assert (found["items"], found["axes"]) == (4, "THW")
    assert "(time, lat, lon), which are axes THW" in found["refusal"]
    assert run(["info", str(path), "--dataset", "hum"]) == 0
    assert "voxload convert would not take it" in capsys.readouterr().out


def test_a_row_of_a_catalogue_is_read_as_a_data_set_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packed, and with time steps."""
    path = as_netcdf(tmp_path / "x.nc", TIMED)
    row = Entry("x", path.name, "temp", shape=(4, 3, 8, 10), dtype="<i2", axes="TDHW", stored_bytes=1920)
    Catalog.from_entries([row], tmp_path).write(tmp_path / "catalog.parquet")
    found = _json([str(tmp_path / "catalog.parquet"), "--sample", "x"], capsys)
    data = voxload.VolumeDataset(tmp_path / "catalog.parquet")
    (item,) = data[0]
    assert (len(data), list(item.shape)) == (found["items"], found["shape"])
    assert item.numpy().dtype == np.dtype(found["item_dtype"])
    assert found["options"] is None


@pytest.mark.parametrize("words", ["", "--decode stored"])
def test_a_picture_is_of_the_first_item(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its planes are those of what the data set hands out: unpacked, or stored where that is asked for."""
    path, drawn = as_netcdf(tmp_path / "x.nc", TIMED), list[Slices]()

    def kept(slices: Slices, **options: Any) -> Any:
        drawn.append(slices)
        return draw_slices(slices, **options)

    monkeypatch.setattr(info_planes, "draw_slices", kept)
    assert run(["info", str(path), *words.split(), "--plot", str(tmp_path / "p.png")]) == 0
    capsys.readouterr()
    (item,) = voxload.VolumeDataset(path, axes="TDHW", decode=words.partition(" ")[2] or None)[0]
    whole = item.numpy()[0]
    planes = [whole.take(extent // 2, axis) for axis, extent in enumerate(whole.shape)]
    for plane, mine in zip(drawn[0].planes, planes, strict=True):
        np.testing.assert_array_equal(plane, mine)
    assert (tmp_path / "p.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["ome 0.5 tczyx", "xarray v3", "netCDF"])
def test_neither_torch_nor_tables_are_loaded(name: str, tmp_path: Path) -> None:
    """What a data set makes of a store is said without a data set, and without the catalogue's library."""
    write, words = STORES[name]
    call = ["info", str(write(tmp_path)), *words.split()]
    done = processes.run([sys.executable, "-c", LOADED, *call], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded"
