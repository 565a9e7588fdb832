"""What people have, what they write, and what they get: a row each, as a user of five minutes would type it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import zarr
from torch.utils.data import RandomSampler, random_split

import voxload
from tests.support.settled import settle
from voxload.augment import Augment, CubeSymmetries

RANDOM = np.random.default_rng(7)
SERIES = RANDOM.standard_normal((6, 2, 4, 6, 8)).astype("<f4")
MANY = RANDOM.integers(0, 99, (5, 4, 6, 8)).astype("<i2")
HUGE = RANDOM.integers(0, 9999, (32, 32, 32)).astype("<i4")


def _cfd(folder: Path) -> voxload.VolumeDataset:
    with h5py.File(folder / "ts.h5", "w") as file:
        file.create_dataset("u", data=SERIES, chunks=(2, 2, 4, 3, 4))
    return voxload.VolumeDataset(folder / "ts.h5", fields={"x": "u"}, axes="TCDHW")


def _weather(folder: Path) -> voxload.VolumeDataset:
    group = zarr.open_group(folder / "era.zarr", mode="w")
    group.create_array("t", data=SERIES[:, 0], chunks=(1, 4, 6, 8), dimension_names=("time", "level", "lat", "lon"))
    window = voxload.Window(2, horizon=1)
    return voxload.VolumeDataset(folder / "era.zarr", fields={"x": "t"}, axes="TDHW", window=window)


def _samples(folder: Path) -> voxload.VolumeDataset:
    np.save(folder / "many.npy", MANY)
    return voxload.VolumeDataset(folder / "many.npy", axes="NDHW")


def _components(folder: Path) -> voxload.VolumeDataset:
    with h5py.File(folder / "v.h5", "w") as file:
        for name, part in zip(("vx", "vy", "vz"), MANY, strict=False):
            file[name] = part
    return voxload.VolumeDataset(folder / "v.h5", fields={"x": ["vx", "vy", "vz"]})


def _huge(folder: Path) -> voxload.VolumeDataset:
    zarr.create_array(folder / "huge.zarr", data=HUGE, chunks=(16, 16, 16))
    return voxload.VolumeDataset(folder / "huge.zarr", patches=voxload.Patches(8, per_sample=50))


def _packed(folder: Path) -> voxload.VolumeDataset:
    with h5py.File(folder / "t.nc", "w") as file:
        file.attrs["_NCProperties"] = "version=2,netcdf=4.9.2"
        file["t"] = MANY[0]
        file["t"].attrs.update({"scale_factor": 0.5, "add_offset": 1.0, "_FillValue": np.int16(-1)})
    return voxload.VolumeDataset(folder / "t.nc")


def _microscope(folder: Path) -> voxload.VolumeDataset:
    group = zarr.open_group(folder / "cells.ome.zarr", mode="w")
    for level in range(2):
        group.create_array(str(level), data=np.ascontiguousarray(SERIES[0, :, :: 2**level]))
    said = {"axes": [{"name": name} for name in "czyx"], "datasets": [{"path": "0"}, {"path": "1"}]}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [said]}
    return voxload.VolumeDataset(folder / "cells.ome.zarr")


ROWS: dict[str, tuple[Callable[[Path], voxload.VolumeDataset], int, Callable[[int], list[Any]]]] = {
    "CFD: (T, C, D, H, W)": (_cfd, 6, lambda index: [SERIES[index]]),
    "weather: windows in time": (
        _weather, 4, lambda index: [SERIES[index : index + 2, :1], SERIES[index + 2 : index + 3, :1]],
    ),
    "many samples in one array": (_samples, 5, lambda index: [MANY[index][None]]),
    "components in datasets of their own": (_components, 1, lambda _: [MANY[:3]]),
    "netCDF-4 with CF packing": (_packed, 1, lambda _: [(MANY[0] * np.float32(0.5) + np.float32(1.0))[None]]),
    "OME-Zarr, multiscale": (_microscope, 1, lambda _: [SERIES[0]]),
}  # fmt: skip
"""The data set, its length, and what each item is."""


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_table(tmp_path: Path, row: str) -> None:
    """Length and items are as expected, and a loader gives them."""
    make, length, item = ROWS[row]
    data = make(tmp_path)
    assert len(data) == length
    with closing(voxload.DataLoader(data, batch_size=None)) as loader:
        for index, loaded in enumerate(loader):
            for parts in (data[index], loaded):
                assert len(parts) == len(item(index))
                for found, wanted in zip(parts, item(index), strict=True):
                    assert np.array_equal(found.numpy(), wanted)


def test_one_volume_of_many_crops(tmp_path: Path) -> None:
    """An epoch has as many as are asked for; with replacement each draw is another crop."""
    data = _huge(tmp_path)
    assert len(data) == 50
    for sampler in (None, RandomSampler(data, replacement=True, num_samples=100)):
        with closing(voxload.DataLoader(data, batch_size=10, sampler=sampler)) as loader:
            crops = [crop.numpy().tobytes() for batch in loader for crop in batch[0]]
        assert len(set(crops)) > 0.9 * len(crops)


def test_a_validation_split(tmp_path: Path) -> None:
    """random_split keeps threads and figures, and each sample is in one part."""
    parts = random_split(_samples(tmp_path), [0.6, 0.4], generator=torch.Generator().manual_seed(0))
    seen = []
    for part in parts:
        with closing(voxload.DataLoader(part, shuffle=True)) as loader:
            seen += [batch[0].numpy().tobytes() for batch in loader]
            assert loader.stats().samples == len(part)
    assert sorted(seen) == sorted(volume.tobytes() for volume in MANY)


def _scans(folder: Path) -> voxload.VolumeDataset:
    for number, shape in enumerate([(6, 7, 8), (9, 5, 8), (7, 7, 7)]):
        with h5py.File(folder / f"scan{number}.h5", "w") as file:
            file.create_dataset("ct", data=RANDOM.integers(-999, 999, shape, "<i2"), chunks=(4, 4, 4))
        settle(folder / f"scan{number}.h5")
    return voxload.VolumeDataset(f"{folder}/scan*.h5", fields={"x": "ct"})


def _turned(folder: Path) -> voxload.VolumeDataset:
    zarr.create_array(folder / "huge.zarr", data=HUGE, chunks=(16, 16, 16))
    settle(folder / "huge.zarr")
    return voxload.VolumeDataset(
        folder / "huge.zarr", patches=voxload.Patches(8, per_sample=20), augment=Augment(CubeSymmetries())
    )


CACHED: dict[str, tuple[Callable[[Path], voxload.VolumeDataset], int]] = {
    "CT volumes of many shapes": (_scans, 3),
    "augmentation and a cache": (_turned, 8),
    "windows in time": (_weather, 6),
}
"""The data set, and how many units it is read in: whole scans, chunks, time steps."""


@pytest.mark.parametrize("row", CACHED)
def test_a_cache_for_all_of_these(tmp_path: Path, row: str) -> None:
    """The stream is that without one, and the storage is asked for each unit once in all epochs."""
    make, units = CACHED[row]
    data = make(tmp_path)
    if make is _weather:
        settle(tmp_path / "era.zarr")
    streams = []
    for cache in (None, voxload.Cache(memory="64MiB")):
        with closing(voxload.DataLoader(data, cache=cache)) as loader:
            streams.append([part.clone() for _ in range(3) for batch in loader for part in batch])
            if cache is not None:
                assert loader.stats().sources["storage"].fetches <= units
    assert all(map(torch.equal, *streams))
    data.close()
