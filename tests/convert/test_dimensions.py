"""Names of dimensions decide the axes of what is converted, as they decide what a data set reads of the same file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import xarray
import zarr

import voxload
from tests.support.tables import named_in, rows
from voxload.catalog.table import Catalog
from voxload.cli.main import run
from voxload.convert import ConvertOptions, Hints, convert
from voxload.errors import UsageError
from voxload.readers import axes
from voxload.readers.axes import known_axes

EXTENTS = {"time": 3, "sample": 2, "channel": 2, "z": 4, "y": 5, "x": 6}
SAME_AS = {"lev": "z", "depth": "z", "lat": "y", "lon": "x", "member": "sample", "variable": "channel"}
FORMS = ("zarr v2", "zarr v3", "netCDF", "HDF5 labels")
Array = npt.NDArray[Any]


def _extent(name: str) -> int:
    return EXTENTS.get(SAME_AS.get(name, name), 4)


def _data(names: tuple[str, ...], *, variables: tuple[str, ...] = ("v",)) -> xarray.Dataset:
    """Return variables of which each voxel has a number of its own."""
    shape = [_extent(name) for name in names]
    voxels = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
    return xarray.Dataset({one: (names, voxels + 10_000 * number) for number, one in enumerate(variables)})


def write(path: Path, data: xarray.Dataset, form: str) -> Path:
    """Write a data set as xarray, netCDF-4 or h5py's labels name dimensions."""
    if form.startswith("zarr"):
        data.to_zarr(path.with_suffix(".zarr"), zarr_format=2 if form == "zarr v2" else 3, consolidated=False)
        return path.with_suffix(".zarr")
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        for name, extent in data.sizes.items():
            if form == "netCDF":
                file[str(name)] = np.arange(extent, dtype="f8")
                file[str(name)].make_scale(str(name))
        for key in map(str, data):
            file[key] = data[key].to_numpy()
            for axis, name in enumerate(map(str, data[key].dims)):
                if form == "netCDF":
                    file[key].dims[axis].attach_scale(file[name])
                else:
                    file[key].dims[axis].label = name
    return path.with_suffix(".h5")


def items(path: Path, **options: Any) -> list[Array]:
    """Return what a data set hands out."""
    data = voxload.VolumeDataset(path, **options)
    found = [data[number][0].numpy() for number in range(len(data))]
    data.close()
    return found


def _converted(raw: Path, out: Path, **options: Any) -> list[Array]:
    convert(raw, out, options=ConvertOptions(**options))
    return items(out)


def _by_name(data: xarray.Dataset, index: Mapping[str, int] | None = None, *, key: str = "v") -> Array:
    """Return a variable as (C, D, H, W), put in order by xarray."""
    found = data[key].isel(index or {})
    found = found.rename({name: SAME_AS[str(name)] for name in found.dims if name in SAME_AS})
    found = found if "channel" in found.dims else found.expand_dims("channel")
    return found.transpose("channel", "z", "y", "x").to_numpy()


SPATIAL = [*itertools.permutations(("z", "y", "x")), ("lev", "lat", "lon"), ("lon", "lat", "depth")]
WITH_CHANNELS = [
    ("channel", "z", "y", "x"),
    ("z", "y", "x", "variable"),
    ("x", "channel", "y", "z"),
    ("lon", "lat", "lev", "variable"),
]


@pytest.mark.few_cases(8)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [*SPATIAL, *WITH_CHANNELS], ids="-".join)
def test_axes_are_those_of_a_data_set(tmp_path: Path, names: tuple[str, ...], form: str) -> None:
    """Whatever their order: the voxels are xarray's by their names, and those of a data set of the raw store."""
    data = _data(names)
    raw = write(tmp_path / "raw", data, form)
    (stored,), (expected,) = _converted(raw, tmp_path / "out"), items(raw, fields={"x": "v"})
    assert np.array_equal(stored, expected)
    assert np.array_equal(stored, _by_name(data))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [("dim_0", "dim_1", "dim_2"), ("x0", "phony_dim_1", "q")])
def test_names_that_say_nothing(tmp_path: Path, names: tuple[str, ...], form: str) -> None:
    """Three axes are (D, H, W) then, as a data set has them, and of four the caller has to name the channels."""
    data = _data(names)
    raw = write(tmp_path / "raw", data, form)
    (stored,) = _converted(raw, tmp_path / "out")
    assert np.array_equal(stored[0], data["v"].to_numpy())
    assert np.array_equal(stored, items(raw, fields={"x": "v"})[0])
    four = write(tmp_path / "four", _data((*names, "dim_3")), form)
    with pytest.raises(UsageError, match=r"four axes without names, shape \(4, 4, 4, 4\).*--axes CDHW"):
        convert(four, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("form", FORMS)
def test_the_callers_axes_win(tmp_path: Path, form: str) -> None:
    """Over names that say otherwise, and over those that no volume has."""
    for number, names in enumerate((("x", "y", "z"), ("time", "lat", "lon"))):
        data = _data(names)
        raw = write(tmp_path / f"raw{number}", data, form)
        (stored,) = _converted(raw, tmp_path / f"out{number}", hints=Hints(axes="DHW"))
        assert np.array_equal(stored[0], data["v"].to_numpy())


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("names", "axes"),
    [
        (("time", "lev", "lat", "lon"), "TDHW"),
        (("lon", "lat", "lev", "time"), "WHDT"),
        (("member", "z", "y", "x"), "NDHW"),
        (("z", "sample", "y", "x"), "DNHW"),
    ],
)
def test_each_sample_and_step_is_a_sample(tmp_path: Path, names: tuple[str, ...], axes: str, form: str) -> None:
    """Never depth: in the order of a data set that is told the axes, in each place where the axis may stand."""
    data = _data(names)
    raw = write(tmp_path / "raw", data, form)
    stored, expected = _converted(raw, tmp_path / "out"), items(raw, fields={"x": "v"}, axes=axes)
    lead = next(name for name in names if name in ("time", "member", "sample"))
    assert len(stored) == len(expected) == _extent(lead)
    for number, (mine, other) in enumerate(zip(stored, expected, strict=True)):
        assert np.array_equal(mine, other)
        assert np.array_equal(mine, _by_name(data, {lead: number}))
    part = "0000_0002" if lead == "time" else "0001"
    assert Catalog.read(tmp_path / "out").keys[-1] == (f"raw_{part}", "v")


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("names", "axes"),
    [
        (("time", "channel", "z", "y", "x"), "TCDHW"),
        (("sample", "time", "x", "y", "z"), "NTWHD"),
        (("z", "y", "x", "channel", "time"), "DHWCT"),
        (("sample", "time", "z", "channel", "y", "x"), "NTDCHW"),
    ],
)
def test_arrays_of_more_axes_are_named_by_the_caller(
    tmp_path: Path, names: tuple[str, ...], axes: str, form: str
) -> None:
    """As for a data set, which looks for no others; each sample and step is a sample then, with all its channels."""
    data = _data(names)
    raw = write(tmp_path / "raw", data, form)
    stored = _converted(raw, tmp_path / "out", hints=Hints(axes=axes.lower()))
    expected = items(raw, fields={"x": "v"}, axes=axes)
    leads = [name for name in ("sample", "time") if name in names]
    every = list(itertools.product(*(range(EXTENTS[name]) for name in leads)))
    assert len(stored) == len(expected) == len(every)
    for mine, other, index in zip(stored, expected, every, strict=True):
        assert np.array_equal(mine, other)
        assert np.array_equal(mine, _by_name(data, dict(zip(leads, index, strict=True))))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ("time", "lat", "lon"),
            r"dimensions \(time, lat, lon\), which are axes THW.*VolumeDataset\(.*THW.*--axes DHW",
        ),
        (("channel", "y", "x"), r"dimensions \(channel, y, x\), which are axes CHW.*--axes DHW"),
        (("sample", "time", "y", "x"), r"dimensions \(sample, time, y, x\), which are axes NTHW.*VolumeDataset"),
        (
            ("time", "q", "r"),
            r"dimensions \(time, q, r\).*expected the axes DHW, or names that say nothing.*--axes DHW",
        ),
        (("x", "y", "q"), r"dimensions \(x, y, q\).*expected the axes DHW"),
        (("time", "q", "lat", "lon"), r"dimensions \(time, q, lat, lon\).*which axis is which.*--axes"),
    ],
)
def test_what_is_no_volume_is_refused(tmp_path: Path, names: tuple[str, ...], said: str, form: str) -> None:
    """Time, samples and channels are no depth, and names of which some are known are no guess."""
    raw = write(tmp_path / "raw", _data(names), form)
    with pytest.raises(UsageError, match=said) as error:
        convert(raw, tmp_path / "out")
    assert "v" in str(error.value).partition("found")[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", FORMS)
def test_variables_of_one_series_belong_together(tmp_path: Path, form: str) -> None:
    """Each step has all of them; those of other steps, or of none, have to be left out by name."""
    names = ("time", "lev", "lat", "lon")
    data = _data(names, variables=("u", "v"))
    raw = write(tmp_path / "raw", data, form)
    convert(raw, tmp_path / "out")
    for key in ("u", "v"):
        found = items(tmp_path / "out", fields={"x": key})
        assert len(found) == 3
        assert all(np.array_equal(mine, _by_name(data, {"time": step}, key=key)) for step, mine in enumerate(found))
    (wind, *_) = _converted(raw, tmp_path / "stacked", stack={"wind": ("v", "u")})
    expected = np.concatenate([_by_name(data, {"time": 0}), _by_name(data, {"time": 0}, key="u")])
    assert np.array_equal(wind, expected)
    mixed = data.assign(mask=(names[1:], data["u"].to_numpy()[0]))
    raw = write(tmp_path / "mixed", mixed, form)
    with pytest.raises(UsageError, match=r"different numbers of samples and time steps, mask 1 and 1.*--dataset"):
        convert(raw, tmp_path / "none")
    assert len(_converted(raw, tmp_path / "chosen", hints=Hints(datasets=("u", "v")), stack={"w": ("u", "v")})) == 3


@pytest.mark.parametrize("form", FORMS)
def test_axes_that_are_said_anew_are_converted_anew(tmp_path: Path, form: str) -> None:
    """Cubes of other axes may look alike: a later run sees that those before are not what is wanted."""
    data = _data(("q", "r", "s", "u"))
    raw = write(tmp_path / "raw", data, form)
    whole = data["v"].to_numpy()
    for said, moved in (("TDHW", whole), ("DTHW", whole.swapaxes(0, 1)), ("DTWH", whole.transpose(1, 0, 3, 2))):
        stored = _converted(raw, tmp_path / "out", hints=Hints(axes=said))
        assert all(np.array_equal(mine[0], step) for mine, step in zip(stored, moved, strict=True)), said
    report = convert(raw, tmp_path / "out", options=ConvertOptions(hints=Hints(axes="DTWH")))
    assert (len(report.converted), len(report.skipped)) == (0, 4)
    three = write(tmp_path / "three", _data(("x", "y", "z")), form)
    for hints, order in ((Hints(axes="DHW"), (0, 1, 2)), (Hints(), (2, 1, 0))):
        (one,) = _converted(three, tmp_path / "three out", hints=hints)
        assert np.array_equal(one[0], _data(("x", "y", "z"))["v"].to_numpy().transpose(order))


def test_one_vector_of_targets_is_not_for_many_samples(tmp_path: Path) -> None:
    """Each of them would get the same label; steps of one simulation have the same parameters."""
    for name, is_refused in (("sample", True), ("time", False)):
        raw = write(tmp_path / name, _data((name, "z", "y", "x")), "netCDF")
        with h5py.File(raw, "a") as file:
            file["unitPar"] = [0.5, 2.0]
        if is_refused:
            with pytest.raises(UsageError, match=r"one vector of targets for 2 samples \(axis N\).*--targets"):
                convert(raw, tmp_path / f"{name} out")
            continue
        catalog = Catalog.read(convert(raw, tmp_path / f"{name} out").catalog)
        assert [list(catalog.entry(*key).targets.values()) for key in catalog.keys] == [[0.5, 2.0]] * 3


def test_voxels_that_were_never_written_stay_an_error_in_a_series(tmp_path: Path) -> None:
    """A hole in one step is no fill value, in Zarr and in HDF5, but for who says so; other steps are not looked at."""
    data = _data(("time", "z", "y", "x"))
    path = tmp_path / "raw.zarr"
    data.to_zarr(path, zarr_format=3, consolidated=False, encoding={"v": {"chunks": (1, 4, 5, 6)}})
    (path / "v/c/1/0/0/0").unlink()
    with pytest.raises(voxload.errors.DataError, match=r"chunk \(1, 0, 0, 0\)"):
        convert(path, tmp_path / "out")
    found = _converted(path, tmp_path / "filled", missing="fill")
    assert not found[1].any()
    assert np.array_equal(found[2], _by_name(data, {"time": 2}))


def ome(path: Path, axes: str, version: str, *, steps: int = 3, group: str = "") -> tuple[Path, Array]:
    """Write an OME-Zarr image of three levels, each half as wide as the one before; return the finest."""
    extents = {"t": steps, "c": 2, "z": 6, "y": 8, "x": 12}
    whole = np.arange(np.prod([extents[axis] for axis in axes])).astype("<u2").reshape([extents[axis] for axis in axes])
    zarr_format: Any = 3 if version == "0.5" else 2
    root = zarr.open_group(path, mode="a", zarr_format=zarr_format)
    held = root.require_group(group) if group else root
    for number in range(3):
        held.create_array(str(number), data=np.ascontiguousarray(whole[..., :: 2**number]), chunks=(2,) * len(axes))
    named = [{"name": axis, "type": {"t": "time", "c": "channel"}.get(axis, "space")} for axis in axes]
    said: Any = [{"axes": named, "datasets": [{"path": str(number)} for number in range(3)], "version": "0.4"}]
    held.attrs.update({"ome": {"version": "0.5", "multiscales": said}} if version == "0.5" else {"multiscales": said})
    return path, whole


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("axes", ["zyx", "czyx", "xyz", "zcyx", "tczyx"])
def test_an_image_is_its_finest_level(tmp_path: Path, axes: str, version: str) -> None:
    """By the image's axes, also of one time step as microscopes write it; coarser levels are named, and no volumes."""
    raw, whole = ome(tmp_path / "i.zarr", axes, version, steps=1)
    (stored,), (expected,) = _converted(raw, tmp_path / "out"), items(raw)
    assert np.array_equal(stored, expected)
    letters = [axis for axis in "tczyx" if axis in axes]
    mine = whole.transpose([axes.index(axis) for axis in letters]).reshape(stored.shape)
    assert np.array_equal(stored, mine)
    report = convert(raw, tmp_path / "again")
    assert report.ignored == tuple(f"i.zarr/{level}, a coarser level of an image" for level in (1, 2))
    assert Catalog.read(report.catalog).keys == (("i", "volume"),)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_steps_of_an_image_are_samples(tmp_path: Path, version: str) -> None:
    """Each with its channels, as a data set has them that is told the axes."""
    raw, whole = ome(tmp_path / "i.zarr", "tczyx", version)
    stored, expected = _converted(raw, tmp_path / "out"), items(raw, axes="TCDHW")
    assert len(stored) == len(expected) == 3
    for step, (mine, other) in enumerate(zip(stored, expected, strict=True)):
        assert np.array_equal(mine, other)
        assert np.array_equal(mine, whole[step])


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_levels_and_labels_by_name(tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One level is converted where it is named; labels are a volume of its sample; the command says what is not."""
    raw, whole = ome(tmp_path / "i.zarr", "czyx", version)
    _, labels = ome(raw, "zyx", version, group="labels/cells")
    (level,) = _converted(raw, tmp_path / "level", hints=Hints(datasets=("1",)))
    assert np.array_equal(level, whole[..., ::2])
    assert run(["convert", str(raw), str(tmp_path / "out"), "--json"]) == 0
    assert "i.zarr/labels/cells/2, a coarser level of an image" in json.loads(capsys.readouterr().out)["ignored"]
    assert np.array_equal(items(tmp_path / "out", fields={"x": "volume"})[0], whole)
    assert np.array_equal(items(tmp_path / "out", fields={"x": "cells"})[0][0], labels)
    assert run(["convert", str(raw), str(tmp_path / "plan"), "--dry-run"]) == 0
    assert "4, such as i.zarr/1" in capsys.readouterr().out
    assert run(["info", str(raw), "--dataset", "volume"]) == 0
    assert "2, such as i.zarr/1" in capsys.readouterr().out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [("lev", "lat", "lon"), ("time", "lev", "lat", "lon")])
@pytest.mark.parametrize("packed", [{"scale_factor": 0.5}, {"_FillValue": np.int32(7)}, {"missing_value": np.int32(7)}])
def test_packed_numbers_are_refused(tmp_path: Path, packed: dict[str, Any], names: tuple[str, ...], form: str) -> None:
    """A stored number that stands for another one, or for none, is never a voxel; nothing is written."""
    raw = write(tmp_path / "raw", _data(names), form)
    if raw.suffix == ".zarr":
        said = {name: value.item() if isinstance(value, np.generic) else value for name, value in packed.items()}
        zarr.open_group(raw)["v"].attrs.update(said)
    else:
        with h5py.File(raw, "a") as file:
            file["v"].attrs.update(packed)
    for missing in ("error", "fill"):
        with pytest.raises(UsageError, match=rf"stand for others, by the CF attributes {next(iter(packed))}"):
            convert(raw, tmp_path / "out", options=ConvertOptions(missing=missing))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_values_that_are_missing_stay_missing(tmp_path: Path, zarr_format: Any) -> None:
    """NaN stands for itself: xarray's floats keep it, in each step."""
    data = _data(("time", "z", "y", "x")).astype("f4")
    data["v"] = data["v"].where(data["v"] % 7 != 0)
    data.to_zarr(tmp_path / "raw.zarr", zarr_format=zarr_format, consolidated=False)
    stored = _converted(tmp_path / "raw.zarr", tmp_path / "out")
    for step, mine in enumerate(stored):
        assert np.isnan(mine).any()
        np.testing.assert_array_equal(mine, _by_name(data, {"time": step}))


def test_the_table_of_names_is_complete() -> None:
    """docs/reference/formats.md lists every name of an axis that is known, and no other."""
    table = dict(rows("reference/formats.md", "axis", "names, in any case"))
    said = {name: axis for axis, cell in table.items() for name in named_in(cell)}
    assert dict(zip(said, known_axes(tuple(said)), strict=True)) == said
    assert {name.lower() for name in said} == axes._LETTERS.keys()
