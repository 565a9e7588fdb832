"""decode="cf": numbers that stand for others, against xarray's own decoding, through every door of the loader."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch
import zarr
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import voxload
from voxload.augment import Augment, Flips
from voxload.data.decoding import decoded, decoded_batch
from voxload.errors import UsageError
from voxload.readers import Location, open_reader
from voxload.readers.cfpacking import Packing
from voxload.transforms import Standardize

SHAPE = (4, 5, 6)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "scale": ("<i2", {"scale_factor": 0.5}),
    "scale and offset": ("<i2", {"scale_factor": 0.01, "add_offset": 273.15}),
    "fill": ("<i2", {"scale_factor": 0.1, "add_offset": 5.0, "_FillValue": np.int16(-7)}),
    "two fills": ("<i4", {"_FillValue": np.int32(3), "missing_value": np.int32(9)}),
    "big endian": (">i2", {"scale_factor": 2.0}),
    "unsigned": ("<i1", {"_Unsigned": "true", "scale_factor": 0.5}),
    "unsigned fill": ("<i1", {"_Unsigned": "true", "_FillValue": np.int8(-1)}),
    "signed": ("<u1", {"_Unsigned": "false"}),
    "unsigned short": ("<u2", {"scale_factor": 0.5, "_FillValue": np.uint16(65535)}),
    "floats": ("<f4", {"_FillValue": np.float32(9.96921e36)}),
    "doubles": ("<f8", {"missing_value": -999.9, "scale_factor": 3.0}),
    "long": ("<i4", {"scale_factor": 1e-6, "add_offset": 1.0}),
}
"""Stored type and attributes."""


def stored(kind: str, seed: int = 0) -> npt.NDArray[Any]:
    """Return numbers of a case, fill values among them."""
    dtype, attributes = CASES[kind]
    random = np.random.default_rng(seed)
    numbers = random.integers(-120, 120, SHAPE).astype(dtype)
    for name in ("_FillValue", "missing_value"):
        if name in attributes:
            numbers.ravel()[random.integers(0, numbers.size, 9)] = attributes[name]
    return numbers


def meant(numbers: npt.NDArray[Any], attributes: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Return what numbers stand for, as the CF conventions and the netCDF users' guide say, in 64 bits."""
    values = numbers
    kind = {"true": "u", "false": "i"}.get(str(attributes.get("_Unsigned")))
    if kind is not None:
        values = numbers.view(np.dtype(f"{kind}{numbers.itemsize}"))
    scale, offset = attributes.get("scale_factor", 1.0), attributes.get("add_offset", 0.0)
    out: npt.NDArray[np.float64] = values.astype(np.float64) * scale + offset
    for name in ("_FillValue", "missing_value"):
        if name in attributes:
            out[numbers == attributes[name]] = np.nan
    return out


def write(folder: Path, store: str, kind: str, seed: int = 0) -> Path:
    """Store a case as netCDF-4 and xarray do."""
    _, attributes = CASES[kind]
    numbers = stored(kind, seed)
    if store == "nc":
        path = folder / f"s{seed}.nc"
        with h5py.File(path, "w") as file:
            file.attrs["_NCProperties"] = "version=2,netcdf=4.9.2"
            file.create_dataset("t", data=numbers, chunks=(2, 3, 4), compression="gzip")
            file["t"].attrs.update(attributes)
        return path
    path = folder / f"s{seed}.zarr"
    said = {name: value.item() if isinstance(value, np.generic) else value for name, value in attributes.items()}
    group = zarr.open_group(path, mode="w", zarr_format=3)
    array = group.create_array(
        "t",
        shape=SHAPE,
        chunks=(2, 3, 4),
        dtype=numbers.dtype,
        attributes=said,
        dimension_names=("level", "lat", "lon"),
    )
    array[...] = numbers
    return path


def is_near(found: torch.Tensor, wanted: npt.NDArray[np.float64]) -> bool:
    """Tell whether numbers are what is meant, to two units in the last place, and NaN where they should be."""
    ulp = torch.finfo(found.dtype).eps * max(1.0, float(np.nanmax(np.abs(wanted))))
    return (
        bool(np.array_equal(np.isnan(found.numpy()), np.isnan(wanted)))
        and float(np.nanmax(np.abs(found.double().numpy() - wanted))) <= 2 * ulp
    )


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("store", ["nc", "zarr"])
@pytest.mark.parametrize("kind", CASES)
def test_items_and_batches_are_what_is_meant(tmp_path: Path, store: str, kind: str) -> None:
    """By a plain call, from a data set, torch's loader and ours, in batches and one by one."""
    for seed in range(3):
        write(tmp_path, store, kind, seed)
    data = voxload.VolumeDataset(f"{tmp_path}/*.{store}", fields={"x": "t"})
    wanted = [meant(stored(kind, seed), CASES[kind][1]) for seed in range(3)]
    target = torch.float64 if kind == "doubles" else torch.float32
    for index in range(3):
        (x,) = data[index]
        assert x.dtype == target
        assert is_near(x[0], wanted[index])
    for size in (3, 1, None):
        theirs = list(DataLoader(data, batch_size=size))
        with closing(voxload.DataLoader(data, batch_size=size)) as loader:
            for _ in range(2):
                for batch, other in zip(loader, theirs, strict=True):
                    assert torch.equal(torch.nan_to_num(batch[0]), torch.nan_to_num(other[0]))
                    assert torch.equal(batch[0].isnan(), other[0].isnan())


BY_XARRAY = """
import sys
import numpy as np
import xarray

values = np.random.default_rng(1).normal(280, 9, (4, 5, 6))
values[1, 2, 3] = np.nan
packed = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
made = xarray.Dataset({"t": (("level", "lat", "lon"), values)})
made.to_zarr(sys.argv[1], encoding={"t": packed}, zarr_format=int(sys.argv[3]), consolidated=False)
np.save(sys.argv[2], xarray.open_zarr(sys.argv[1], consolidated=False)["t"].values.astype("f8"))
"""


@pytest.mark.long
@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.long)])
def test_xarray_reads_the_same(tmp_path: Path, version: int) -> None:
    """What xarray packed is what xarray gives back; in a process of its own, for it keeps its threads."""
    words = [sys.executable, "-c", BY_XARRAY, str(tmp_path / "t.zarr"), str(tmp_path / "t.npy"), str(version)]
    subprocess.run(words, check=True, timeout=300)
    (x,) = voxload.VolumeDataset(tmp_path / "t.zarr", fields={"x": "t"}, axes="DHW")[0]
    assert is_near(x[0], np.load(tmp_path / "t.npy"))


def test_files_with_scales_of_their_own(tmp_path: Path) -> None:
    """Each month of a reanalysis is packed by its own range; batches mix them, with and without a cache."""
    parts = []
    for number, (scale, offset) in enumerate([(0.1, 3.0), (0.25, -7.0), (2.0, 0.0), (0.1, 3.0)]):
        numbers = np.random.default_rng(number).integers(-99, 99, SHAPE).astype("<i2")
        with h5py.File(tmp_path / f"{number}.nc", "w") as file:
            file["t"] = numbers
            file["t"].attrs.update({"scale_factor": scale, "add_offset": offset})
        parts.append(numbers * scale + offset)
    data = voxload.VolumeDataset(f"{tmp_path}/*.nc", fields={"x": "t"}, decode="cf")
    for cache in (None, voxload.Cache(memory="1MiB")):
        with closing(voxload.DataLoader(data, batch_size=2, cache=cache)) as loader:
            for _ in range(3):
                for place, (x,) in enumerate(loader):
                    for inner in range(2):
                        assert is_near(x[inner, 0], parts[2 * place + inner])
    with closing(voxload.DataLoader(data, batch_size=2, readers="process")) as loader:
        assert is_near(next(iter(loader))[0][1, 0], parts[1])


def test_transforms_augmentations_and_windows_come_behind(tmp_path: Path) -> None:
    """What is done to voxels is done to what is meant; components are unpacked each by its own scale."""
    numbers = np.random.default_rng(2).integers(-99, 99, (6, *SHAPE)).astype("<i2")
    with h5py.File(tmp_path / "run.nc", "w") as file:
        for name, scale in (("u", 0.5), ("v", 0.25)):
            file[name] = numbers
            file[name].attrs["scale_factor"] = scale
        file["w"] = numbers
    data = voxload.VolumeDataset(
        tmp_path / "run.nc",
        fields={"x": ["u", "v", "w"]},
        axes="TDHW",
        window=voxload.Window(2, horizon=1),
        decode="cf",
    )
    meant_steps = np.stack([numbers * 0.5, numbers * 0.25, numbers * 1.0], axis=1)
    x, y = data[3]
    assert np.array_equal(x.numpy(), meant_steps[3:5].astype("f4"))
    assert np.array_equal(y.numpy(), meant_steps[5:6].astype("f4"))
    with closing(voxload.DataLoader(data, batch_size=2, transform=Standardize([1, 2, 3], [2, 2, 2]))) as loader:
        x, _ = next(iter(loader))
    expected = (meant_steps[:2] - np.array([1, 2, 3]).reshape(3, 1, 1, 1)) / 2
    assert torch.allclose(x[0], torch.from_numpy(expected).float())
    turned = voxload.VolumeDataset(
        tmp_path / "run.nc", fields={"x": "u"}, axes="TDHW", augment=Augment(Flips(), seed=1), decode="cf"
    )
    plain = voxload.VolumeDataset(tmp_path / "run.nc", fields={"x": "w"}, axes="TDHW", augment=Augment(Flips(), seed=1))
    assert np.array_equal(turned[4][0].numpy(), plain[4][0].numpy() * np.float32(0.5))


def test_the_numbers_as_stored_when_asked_for(tmp_path: Path) -> None:
    """decode="stored" ignores attributes because it is told to; a plain reader still refuses them."""
    path = write(tmp_path, "nc", "scale and offset")
    (x,) = voxload.VolumeDataset(path, fields={"x": "t"}, decode="stored")[0]
    assert np.array_equal(x[0].numpy(), stored("scale and offset"))
    with pytest.raises(UsageError, match="VolumeDataset"):
        open_reader(Location(str(path), "t"))
    with pytest.raises(UsageError, match="'cf' or 'stored'"):
        voxload.VolumeDataset(path, fields={"x": "t"}, decode="xarray")


@pytest.mark.parametrize(
    ("dtype", "attributes", "said"),
    [
        ("<i2", {"scale_factor": [1.0, 2.0]}, "scale_factor"),
        ("<i2", {"scale_factor": float("inf")}, "scale_factor"),
        ("<i2", {"_FillValue": 1e9}, "_FillValue"),
        ("<i2", {"_FillValue": 0.5}, "_FillValue"),
        ("|i1", {"_Unsigned": "perhaps"}, "_Unsigned"),
        ("<i2", {"add_offset": "x"}, "add_offset"),
    ],
)
def test_what_cannot_be_applied_is_refused(tmp_path: Path, dtype: str, attributes: dict[str, Any], said: str) -> None:
    """Never ignored: the attribute is named, with its value and what to do."""
    with h5py.File(tmp_path / "t.nc", "w") as file:
        file["t"] = np.zeros(SHAPE, dtype)
        file["t"].attrs.update(attributes)
    with pytest.raises(UsageError, match=rf'{said}.*decode="stored"'):
        voxload.VolumeDataset(tmp_path / "t.nc", fields={"x": "t"}, decode="cf")[0]


def test_whose_attributes_they_are_is_asked(tmp_path: Path) -> None:
    """The scale factor of a universe is no packing: of files that netCDF did not write, the user says what is meant."""
    with h5py.File(tmp_path / "universe.h5", "w") as file:
        file["t"] = stored("scale")
        file["t"].attrs["scale_factor"] = 0.5
    with pytest.raises(UsageError, match=r'decode="cf".*"stored"'):
        voxload.VolumeDataset(tmp_path / "universe.h5", fields={"x": "t"})[0]
    with h5py.File(tmp_path / "universe.h5", "r+") as file:
        for axis in range(3):
            file[f"d{axis}"] = np.arange(SHAPE[axis])
            file[f"d{axis}"].make_scale(f"d{axis}")
            file["t"].dims[axis].attach_scale(file[f"d{axis}"])
    (x,) = voxload.VolumeDataset(tmp_path / "universe.h5", fields={"x": "t"})[0]
    assert np.array_equal(x[0].numpy(), stored("scale") * np.float32(0.5))


def test_samples_that_are_packed_and_not_are_no_batch(tmp_path: Path) -> None:
    """Floats and integers are no one tensor; one by one each is what it means."""
    write(tmp_path, "nc", "scale", 0)
    with h5py.File(tmp_path / "t1.nc", "w") as file:
        file["t"] = stored("scale", 1)
    data = voxload.VolumeDataset(f"{tmp_path}/*.nc", fields={"x": "t"})
    with closing(voxload.DataLoader(data, batch_size=1)) as loader:
        first, second = (batch[0].clone() for batch in loader)
    assert (first.dtype, second.dtype) == (torch.float32, torch.int16)
    with closing(voxload.DataLoader(data, batch_size=2)) as loader, pytest.raises(voxload.errors.DataError):
        next(iter(loader))


@given(
    st.lists(
        st.one_of(st.none(), st.builds(Packing, st.floats(-9, 9), st.floats(-9, 9), st.just((3.0,)), st.booleans())),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["i1", "u1", "i2", "i4", "f4"]),
)
def test_a_batch_is_its_samples(packings: list[Packing | None], dtype: str) -> None:
    """Whatever the packings of channels and samples, a batch is decoded as its samples are."""
    volumes = torch.from_numpy(np.arange(2 * 6 * 8).reshape(2, 6, 2, 2, 2).astype(dtype))
    own = tuple(packings) * (6 // len(packings) if 6 % len(packings) == 0 else 1)
    for kinds in ([tuple(packings)] * 2, [tuple(packings), ()], [own, own]):
        if any(6 % len(kind) for kind in kinds if kind):
            continue
        found = decoded_batch(volumes, kinds)
        for place, kind in enumerate(kinds):
            expected = decoded(volumes[place], kind)
            assert torch.equal(torch.nan_to_num(found[place]), torch.nan_to_num(expected.to(found.dtype)))
