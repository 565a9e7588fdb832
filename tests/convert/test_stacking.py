"""Conversions whose volumes are variables of a sample, channel by channel: each compared with h5py and zarr-python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from astropy.io import fits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import voxload
from tests.convert.trees import tree
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, Hints, Packing, Share, StoredFormat, convert, plan_conversion
from voxload.convert.plan.tiles import LIBRARY_BYTES
from voxload.errors import DataError, UsageError
from voxload.verification import verify

Array = npt.NDArray[Any]
VELOCITY = ("vx", "vy", "vz")
ORDERS = ["DHW", "HWD", "WHD", "CDHW", "DHWC", "WCHD"]
nib: Any = nibabel
"""Not all of it is annotated."""


def field(number: int, shape: tuple[int, ...] = (12, 8, 10), dtype: str = "f4") -> Array:
    """Return voxels that no other number gives."""
    return np.random.default_rng(number).integers(0, 120, shape).astype(dtype)


def write(path: Path, targets: Sequence[float] = (), /, **volumes: Array) -> Path:
    """Write an HDF5 file of volumes (D, H, W), or (C, D, H, W) with labels that say so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, volume in volumes.items():
            file[name] = volume
            for axis, letter in enumerate("cdhw"[-volume.ndim :]):
                file[name].dims[axis].label = letter
        if targets:
            file["targets"] = np.array(targets, "f8")
            file["targets"].attrs["names"] = [f"t{number}" for number in range(len(targets))]
    return path


def stack(*, name: str = "velocity", variables: Sequence[str] = VELOCITY, **options: Any) -> ConvertOptions:
    """Return options by which variables become channels."""
    return ConvertOptions(stack={name: variables}, **options)


def volume_of(catalog: Path, sample: str, dataset: str) -> Array:
    """Return a converted volume through h5py or zarr-python alone, from what the catalogue says."""
    entry = Catalog.read(catalog).entry(sample, dataset)
    path = catalog.parent / entry.path
    if path.is_dir():
        return np.asarray(zarr.open_array(path / dataset, mode="r")[...])
    with h5py.File(path, "r") as file:
        return np.asarray(file[dataset][...])


def manifest_of(path: Path) -> dict[str, Any]:
    """Return the manifest of a converted Zarr volume."""
    found: dict[str, Any] = json.loads((path / "zarr.json").read_text())["attributes"]["voxload"]
    return found


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Give a folder of two files, each with three components of a velocity and a density."""
    for number in range(2):
        fields = {name: field(10 * number + place) for place, name in enumerate((*VELOCITY, "density"))}
        write(tmp_path / f"raw/u{number}.h5", (number, 2.0), **fields)
    return tmp_path / "raw"


@pytest.mark.long
@pytest.mark.parametrize("stored", list(StoredFormat))
def test_one_volume_of_three_variables(tmp_path: Path, raw: Path, stored: StoredFormat) -> None:
    """The volume is what h5py's arrays are, stacked in the order named; what is not named is converted as before."""
    order = ("vz", "vx", "vy")
    report = convert(raw, tmp_path / "out", options=stack(variables=order, format=stored, verify=True, checksums=True))
    assert report.converted == ("u0", "u1")
    assert report.verified == 2 * 4 * 12 * 8 * 10
    catalog = Catalog.read(report.catalog)
    assert set(catalog.keys) == {(f"u{n}", name) for n in range(2) for name in ("velocity", "density")}
    for sample in catalog.samples:
        with h5py.File(raw / f"{sample}.h5") as file:
            np.testing.assert_array_equal(
                volume_of(report.catalog, sample, "velocity"), np.stack([file[name][...] for name in order])
            )
            np.testing.assert_array_equal(volume_of(report.catalog, sample, "density"), file["density"][...][None])
        assert catalog.entry(sample, "velocity").path == f"{sample}.velocity{stored.suffix}"
        assert catalog.entry(sample, "velocity").targets == {"t0": float(sample[-1]), "t1": 2.0}
    summary = catalog.summary("u0", "velocity")
    assert summary is not None
    with h5py.File(raw / "u0.h5") as file:
        means = [float(file[name][...].mean(dtype="f8")) for name in order]
    assert [one.mean for one in summary.channels] == pytest.approx(means)
    assert verify(report.catalog).damaged == 0
    data = voxload.VolumeDataset(report.catalog, fields={"x": "velocity"})
    assert tuple(data[0][0].shape) == (3, 12, 8, 10)
    data.close()


@pytest.mark.long
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spatial=st.tuples(*[st.integers(1, 9)] * 3),
    dtype=st.sampled_from(["u1", "<i2", ">i4", "f2", ">f4", "f8"]),
    parts=st.lists(st.tuples(st.sampled_from(ORDERS), st.integers(1, 3), st.booleans()), min_size=1, max_size=5),
    stored=st.sampled_from(list(StoredFormat)),
    spare=st.integers(0, 3),
)
def test_any_variables_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    spatial: tuple[int, int, int],
    dtype: str,
    parts: list[tuple[str, int, bool]],
    stored: StoredFormat,
    spare: int,
) -> None:
    """Axes of any order, channels or none, chunks or none, and whatever memory allows to be read at once."""
    folder = tmp_path_factory.mktemp("any")
    with h5py.File(folder / "u.h5", "w") as file:
        for number, (axes, count, is_chunked) in enumerate(parts):
            extents = dict(zip("CDHW", (count, *spatial), strict=True))
            values = field(number, tuple(extents[axis] for axis in axes), dtype)
            chunks = tuple(-(-extent // 2) for extent in values.shape) if is_chunked else None
            file.create_dataset(f"v{number}", data=values, chunks=chunks, compression="gzip" if chunks else None)
            for place, letter in enumerate(axes.lower()):
                file[f"v{number}"].dims[place].label = letter
    names = [f"v{number}" for number in reversed(range(len(parts)))]
    with h5py.File(folder / "u.h5") as file:
        plain = [
            np.einsum(f"{axes}->{''.join(letter for letter in 'CDHW' if letter in axes)}", file[f"v{number}"][...])
            for number, (axes, _, _) in enumerate(parts)
        ]
    expected = np.concatenate([one if one.ndim == 4 else one[None] for one in reversed(plain)])
    chunks = tuple(-(-extent // 2) for extent in spatial)
    options = stack(
        name="all",
        variables=names,
        format=stored,
        chunks=chunks,
        max_memory=LIBRARY_BYTES + 2**16 + (12 + 8 * spare) * expected.nbytes,
        workers=1,
        verify=True,
    )
    report = convert(folder / "u.h5", folder / "out", options=options)
    found = volume_of(report.catalog, "u", "all")
    assert found.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, expected)


LAYOUTS: dict[str, tuple[str, str]] = {
    "a folder a sample": ("run{n}/{v}.npy", "run{n}"),
    "a folder a sample, longer names": ("run{n}/snap_{v}.npy", "run{n}_snap"),
    "a folder a variable": ("{v}/run{n}.npy", "run{n}"),
    "a folder a variable, which the file repeats": ("{v}/{v}_{n}.npy", "{n}"),
    "behind the sample": ("run{n}_{v}.npy", "run{n}"),
    "before the sample": ("{v}-run{n}.npy", "run{n}"),
    "within": ("run{n}.{v}.snap.npy", "run{n}.snap"),
}
"""Where files of one variable are, and what their samples are then called."""


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variables", [VELOCITY, ("x", "velocity_x", "velocity_y")])
def test_a_file_a_variable(tmp_path: Path, layout: str, variables: tuple[str, ...]) -> None:
    """The variable's name in the file's, or its folder's, is no part of the sample's; a longer name is none of its."""
    pattern, named = LAYOUTS[layout]
    for number in range(2):
        for place, name in enumerate(variables):
            path = tmp_path / "raw" / pattern.format(n=number, v=name)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, field(10 * number + place))
    report = convert(tmp_path / "raw", tmp_path / "out", options=stack(variables=variables))
    assert report.converted == tuple(named.format(n=number) for number in range(2))
    for number in range(2):
        found = volume_of(report.catalog, named.format(n=number), "velocity")
        np.testing.assert_array_equal(found, np.stack([field(10 * number + place) for place in range(3)]))


def test_files_beside_each_other_are_one_sample(tmp_path: Path) -> None:
    """Where nothing is left of their names, the folder that is converted is the sample."""
    (tmp_path / "run7").mkdir()
    for place, name in enumerate(VELOCITY):
        np.save(tmp_path / f"run7/{name}.npy", field(place))
    report = convert(tmp_path / "run7", tmp_path / "out", options=stack())
    assert report.converted == ("run7",)
    assert [path.name for path in (tmp_path / "out").glob("*.zarr")] == ["run7.zarr"]


@pytest.mark.parametrize("kind", ["hdf5 of one dataset each", "hdf5, called data", "zarr", "fits", "nifti"])
def test_other_files_of_one_variable(tmp_path: Path, kind: str) -> None:
    """What a file calls its one volume is no matter, if its own name says the variable."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for place, name in enumerate(VELOCITY):
        values, path = field(place), raw / f"s1_{name}"
        if kind.startswith("hdf5"):
            write(path.with_suffix(".h5"), **{"data" if "data" in kind else name: values})
        elif kind == "zarr":
            zarr.create_array(path.with_suffix(".zarr"), data=values)
        elif kind == "fits":
            fits.PrimaryHDU(values).writeto(path.with_suffix(".fits"))
        else:
            nib.save(nib.Nifti1Image(values.T, np.eye(4)), path.with_suffix(".nii.gz"))
    report = convert(raw, tmp_path / "out", options=stack(verify=True))
    assert report.converted == ("s1",)
    expected = np.stack([field(place) for place in range(3)])
    np.testing.assert_array_equal(volume_of(report.catalog, "s1", "velocity"), expected)


def test_units_of_one_fits_file(tmp_path: Path) -> None:
    """Images by EXTNAME; the manifest keeps what each said of itself, and where its channels are."""
    units = [fits.ImageHDU(field(place), name=name) for place, name in enumerate(("VX", "VY"))]
    for unit, text in zip(units, ("km/s", "m/s"), strict=True):
        unit.header["BUNIT"] = text
    fits.HDUList([fits.PrimaryHDU(), *units]).writeto(tmp_path / "u.fits")
    report = convert(tmp_path / "u.fits", tmp_path / "out", options=stack(variables=("VY", "VX")))
    np.testing.assert_array_equal(volume_of(report.catalog, "u", "velocity"), np.stack([field(1), field(0)]))
    (part,) = manifest_of(tmp_path / "out/u.zarr")["parts"]
    assert [file["name"] for file in part["files"]] == ["u.fits"]
    assert [(one["name"], one["axes"], one["first"], one["channels"]) for one in part["variables"]] == [
        ("VY", "DHW", 0, 1),
        ("VX", "DHW", 1, 1),
    ]
    assert [one["attributes"]["BUNIT"] for one in part["variables"]] == ["m/s", "km/s"]


def test_several_stacks_and_a_new_name(tmp_path: Path, raw: Path) -> None:
    """Each stack is a volume; one of a single variable gives it another name, all of its channels included."""
    write(
        raw / "u2.h5",
        (2, 2),
        density=field(1),
        vx=field(2),
        vy=field(3),
        vz=field(4),
        b=field(5, (2, 12, 8, 10)),
    )
    stacks = {"v": ("vx", "vy"), "rho": ("density",), "mixed": ("b", "vz")}
    report = convert(raw / "u2.h5", tmp_path / "out", options=ConvertOptions(stack=stacks))
    assert set(Catalog.read(report.catalog).keys) == {("u2", "v"), ("u2", "rho"), ("u2", "mixed")}
    np.testing.assert_array_equal(volume_of(report.catalog, "u2", "rho"), field(1)[None])
    expected = np.concatenate([field(5, (2, 12, 8, 10)), field(4)[None]])
    np.testing.assert_array_equal(volume_of(report.catalog, "u2", "mixed"), expected)
    (part,) = manifest_of(tmp_path / "out/u2.mixed.zarr")["parts"]
    assert [(one["dataset"], one["axes"], one["first"], one["channels"]) for one in part["variables"]] == [
        ("b", "CDHW", 0, 2),
        ("vz", "DHW", 2, 1),
    ]


def test_steps_of_trajectories(tmp_path: Path) -> None:
    """Parts of one dataset are stacked part by part: each step of The Well's trajectories has its own channels."""
    shape = (2, 3, 4, 5, 6)
    with h5py.File(tmp_path / "w.hdf5", "w") as file:
        file.attrs.update({"n_spatial_dims": 3, "n_trajectories": 2, "dataset_name": "w", "grid_type": "cartesian"})
        file["dimensions/time"] = np.arange(3.0)
        for name, components in (("t0_fields/density", ()), ("t1_fields/velocity", (3,))):
            file.create_dataset(name, data=field(len(components), (*shape, *components)), chunks=True)
            file[name].attrs.update({"sample_varying": True, "time_varying": True, "dim_varying": [True] * 3})
    report = convert(
        tmp_path / "w.hdf5", tmp_path / "out", options=stack(variables=("density", "velocity"), verify=True)
    )
    assert len(report.converted) == 6
    density, velocity = field(0, shape), field(1, (*shape, 3))
    found = volume_of(report.catalog, "w_0001_0002", "velocity")
    np.testing.assert_array_equal(found[0], density[1, 2])
    np.testing.assert_array_equal(found[1:], velocity[1, 2].transpose(3, 0, 1, 2))


@pytest.mark.long
@pytest.mark.parametrize("stored", list(StoredFormat))
def test_with_packing_and_splitting(tmp_path: Path, stored: StoredFormat) -> None:
    """Stacked samples share volumes and are cut like others; windows of them are what was stacked."""
    for number in range(5):
        fields = {name: field(10 * number + place) for place, name in enumerate(VELOCITY)}
        write(tmp_path / f"raw/u{number}.h5", **fields)
    options = stack(format=stored, pack=Packing.ALWAYS, split=(6, 8, 5), checksums=True, verify=True)
    report = convert(tmp_path / "raw", tmp_path / "out", options=options)
    assert len(report.converted) == 5 * 4
    assert len([path for path in (tmp_path / "out").iterdir() if path.name.startswith("u0+4")]) == 1
    catalog = Catalog.read(report.catalog)
    data = voxload.VolumeDataset(report.catalog)
    for number, sample in enumerate(catalog.samples):
        entry = catalog.entry(sample, "velocity")
        assert entry.origin is not None
        place = tuple(slice(lo, lo + width) for lo, width in zip(entry.origin, (6, 8, 5), strict=True))
        expected = np.stack([field(10 * int(entry.universe[1]) + one)[place] for one in range(3)])
        np.testing.assert_array_equal(data[number][0].numpy(), expected)
    data.close()
    assert verify(report.catalog).damaged == 0
    assert not convert(tmp_path / "raw", tmp_path / "out", options=options).converted


def test_with_voxels_that_were_never_written(tmp_path: Path) -> None:
    """They are an error that names the variable's dataset, and filled when that is asked for, which is told of each."""
    with h5py.File(tmp_path / "u.h5", "w") as file:
        for number, name in enumerate(VELOCITY):
            file.create_dataset(name, (8, 8, 8), "i2", chunks=(4, 4, 4), fillvalue=number)[:4] = 9
        expected = np.stack([file[name][...] for name in VELOCITY])
    with pytest.raises(DataError, match=r"u\.h5:vx.*convert --missing fill"):
        convert(tmp_path / "u.h5", tmp_path / "out", options=stack())
    report = convert(tmp_path / "u.h5", tmp_path / "out", options=stack(missing="fill"))
    np.testing.assert_array_equal(volume_of(report.catalog, "u", "velocity"), expected)
    (part,) = manifest_of(tmp_path / "out/u.zarr")["parts"]
    assert {one["attributes"]["voxels_never_written"] for one in part["variables"]} == {"fill"}


def test_a_dry_run_says_what_would_be_stacked(tmp_path: Path, raw: Path) -> None:
    """Names, extents and variables of the volumes, and nothing is written."""
    plan = plan_conversion(raw, tmp_path / "out", stack())
    assert [(one.path.name, one.shape, one.variables) for one in plan.volumes] == [
        ("u0.density.zarr", (1, 12, 8, 10), ()),
        ("u0.velocity.zarr", (3, 12, 8, 10), VELOCITY),
        ("u1.density.zarr", (1, 12, 8, 10), ()),
        ("u1.velocity.zarr", (3, 12, 8, 10), VELOCITY),
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_array_tasks_share_stacks(tmp_path: Path, raw: Path) -> None:
    """Two tasks end where one run does, and a task that was told another order has not done its share."""
    alone = convert(raw, tmp_path / "one", options=stack())
    other = stack(variables=VELOCITY[::-1], share=Share(0, 2))
    assert not convert(raw, tmp_path / "two", options=other).is_catalogued
    assert not convert(raw, tmp_path / "two", options=stack(share=Share(1, 2))).is_catalogued
    report = convert(raw, tmp_path / "two", options=stack(share=Share(0, 2)))
    assert report.is_catalogued
    assert tree(report.catalog.parent) == tree(alone.catalog.parent)


Change = Callable[[Path], ConvertOptions]
CHANGES: dict[str, Change] = {
    "another order": lambda _: stack(variables=("vy", "vx", "vz")),
    "fewer variables": lambda _: stack(variables=("vx", "vy")),
    "another name": lambda _: stack(name="v"),
    "no stack": lambda _: ConvertOptions(),
    "two stacks": lambda _: ConvertOptions(stack={"velocity": ("vx", "vy"), "z": ("vz", "density")}),
}


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_option_is_converted_anew(tmp_path: Path, raw: Path, change: str) -> None:
    """What was stacked otherwise goes when the new volumes are there: the folder is as if it had been made at once."""
    first = convert(raw, tmp_path / "out", options=stack())
    assert convert(raw, tmp_path / "out", options=stack()).skipped == first.converted
    options = CHANGES[change](raw)
    convert(raw, tmp_path / "out", options=options)
    convert(raw, tmp_path / "fresh", options=options)
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
    convert(raw, tmp_path / "out", options=stack())
    shutil.rmtree(tmp_path / "fresh")
    convert(raw, tmp_path / "fresh", options=stack())
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_changed_source_is_converted_anew(tmp_path: Path) -> None:
    """One variable's file is enough; the samples of the others stay."""
    for number in range(2):
        for place, name in enumerate(VELOCITY):
            (tmp_path / f"raw/u{number}").mkdir(parents=True, exist_ok=True)
            np.save(tmp_path / f"raw/u{number}/{name}.npy", field(10 * number + place))
    convert(tmp_path / "raw", tmp_path / "out", options=stack())
    np.save(tmp_path / "raw/u1/vz.npy", field(77, (12, 8, 10)) + 1)
    report = convert(tmp_path / "raw", tmp_path / "out", options=stack())
    assert (report.converted, report.skipped) == (("u1",), ("u0",))
    np.testing.assert_array_equal(volume_of(report.catalog, "u1", "velocity")[2], field(77) + 1)


def test_what_a_stack_shares_with_others_is_not_torn_out(tmp_path: Path, raw: Path) -> None:
    """A conversion of some of a stack's variables neither removes the others nor has these twice."""
    convert(raw / "u0.h5", tmp_path / "out", options=stack())
    before = tree(tmp_path / "out")
    with pytest.raises(UsageError, match=r"u0\.velocity\.zarr: found cubes of 'vz' of .*u0\.h5, too"):
        convert(raw / "u0.h5", tmp_path / "out", options=ConvertOptions(hints=Hints(datasets=("vx", "vy"))))
    assert tree(tmp_path / "out") == before
