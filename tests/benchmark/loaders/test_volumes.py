"""Volumes: what loaders of other libraries are told of the samples."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.benchmark.stored import CHUNKS, EXTENTS, FORMATS, store
from voxload.benchmark.loaders.protocol import Volume
from voxload.benchmark.loaders.volumes import dataset_of, volumes_of
from voxload.benchmark.workload.workload import Samples, Workload
from voxload.data.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

SUFFIXES = {"hdf5": ".h5", "zarr2": ".zarr", "zarr3": ".zarr/full", "npy": ".npy", "raw": ".raw"}


@pytest.mark.parametrize("form", FORMATS)
def test_catalogues_of_each_format(form: str, tmp_path: Path) -> None:
    """Paths are absolute, extents and chunks as stored, and a dataset's name where the library wants one."""
    location = store(form, tmp_path / "samples", axes="DHWC", dtype=">u2")
    with closing(dataset_of(Workload(Samples(location)), ProcessGrid())) as data:
        found = volumes_of(data)
        assert len(found) == len(data)
    chunks = () if form in ("npy", "raw") else tuple(CHUNKS[axis] for axis in "DHWC")
    assert found[1] == Volume(
        path=str(tmp_path / f"samples/s1{SUFFIXES[form]}"),
        dataset="full" if form == "hdf5" else "",
        shape=tuple(EXTENTS[axis] for axis in "DHWC"),
        axes="DHWC",
        dtype=">u2",
        format=form,
        chunks=chunks,
    )


def test_files_that_nobody_catalogued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only dataset's name is looked up, and a relative path becomes absolute."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["deep/cube"] = np.zeros((3, 4, 5), np.float32)
    monkeypatch.chdir(tmp_path)
    with closing(dataset_of(Workload(Samples("*.h5", axes="WHD")), ProcessGrid())) as data:
        assert volumes_of(data) == (Volume(f"{tmp_path}/a.h5", "deep/cube", (3, 4, 5), "WHD", "<f4", "hdf5"),)


def test_a_dataset_can_be_named_and_one_must_be(tmp_path: Path) -> None:
    """Of several datasets one is loaded."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = np.zeros((3, 4, 5), np.int16), np.zeros((3, 4, 5), np.int8)
    with closing(dataset_of(Workload(Samples(f"{tmp_path}/a.h5", "y")), ProcessGrid())) as data:
        assert [volume.dtype for volume in volumes_of(data)] == ["|i1"]
    fields = {"x": "x", "y": "y"}
    with closing(VolumeDataset(f"{tmp_path}/a.h5", fields=fields)) as data, pytest.raises(UsageError, match="x, y"):
        volumes_of(data)
