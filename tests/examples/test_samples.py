"""The examples for samples as people have them train, on data made in their layouts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from tests.examples.cases import EXAMPLES
from tests.support.rangeserver import serving

GUARD = 300
"""Seconds after which a script is taken for hung."""


def losses(name: str, *words: str) -> list[float]:
    """Run an example; return what it prints of its losses."""
    return [float(found) for found in re.findall(r", loss ([\d.]+)", printed(name, *words))]


def printed(name: str, *words: str) -> str:
    """Run an example; return what it prints."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_windows_of_the_wells_layout_train(tmp_path: Path) -> None:
    """A wave that travels along w is forecast better with each epoch."""
    place = np.arange(12) * 2 * np.pi / 12
    for number in range(2):
        with h5py.File(tmp_path / f"run{number}.hdf5", "w") as file:
            phases = np.random.default_rng(number).uniform(0, 6, (2, 1, 1, 1, 1)) + 0.3 * np.arange(7).reshape(
                -1, 1, 1, 1
            )
            wave = np.broadcast_to(np.sin(place - phases), (2, 7, 8, 8, 12)).astype("<f4")
            velocity = np.stack([wave, -wave, wave], -1)
            file.create_dataset("t0_fields/density", data=wave, chunks=(1, 2, 8, 8, 12))
            file.create_dataset("t1_fields/velocity", data=velocity, chunks=(1, 1, 8, 8, 12, 3))
    found = losses("rollout", f"{tmp_path}/*.hdf5", "--epochs", "4")
    assert len(found) == 4
    assert found[-1] < 0.7 * found[0]


@pytest.mark.long
def test_patches_of_scans_of_many_shapes_train(tmp_path: Path) -> None:
    """A bright organ is found better with each epoch."""
    for number, shape in enumerate([(20, 24, 22), (18, 30, 20), (26, 18, 18)]):
        random = np.random.default_rng(number)
        labels = np.zeros(shape, "u1")
        labels[4:12, 5:13, 3:14] = 1
        with h5py.File(tmp_path / f"scan{number}.h5", "w") as file:
            voxels = random.normal(0, 100, shape) + 700.0 * labels
            file.create_dataset("ct", data=voxels.astype("<i2"), chunks=(8, 8, 8), compression="gzip")
            file.create_dataset("labels", data=labels, chunks=(8, 8, 8))
    found = losses("ct_patches", f"{tmp_path}/*.h5", "--epochs", "3")
    assert len(found) == 3
    assert found[-1] < 0.7 * found[0]


@pytest.mark.long
def test_patches_of_one_huge_volume_train(tmp_path: Path) -> None:
    """Noise is told from a smooth signal; every piece is read once, and epochs after the first one read none."""
    grid = np.stack(np.meshgrid(*[np.arange(64)] * 3, indexing="ij"))
    signal = np.sin(grid / 5).sum(0) * 400
    noisy = signal + np.random.default_rng(0).normal(0, 200, signal.shape)
    zarr.create_array(tmp_path / "brain.zarr", data=noisy.astype("<i2"), chunks=(32, 32, 32))
    out = printed("huge_volume", str(tmp_path / "brain.zarr"), "--epochs", "4", "--memory", "64MiB")
    found = [float(loss) for loss in re.findall(r", loss ([\d.]+)", out)]
    assert len(found) == 4
    assert found[-1] < 0.7 * found[0]
    assert set(re.findall(r"(\d+) from storage", out)) == {"1"}  # it is one piece, as small as it is


@pytest.mark.long
def test_hours_behind_a_server_train(tmp_path: Path) -> None:
    """Packed hours in xarray's layout: windows overlap, and each hour is asked for once."""
    hours, shape = 12, (2, 12, 16)
    place = np.arange(shape[2]) * 2 * np.pi / shape[2]
    wave = np.sin(place - 0.4 * np.arange(hours).reshape(-1, 1, 1, 1)) + np.zeros((hours, *shape))
    group = zarr.open_group(tmp_path / "era.zarr", mode="w", zarr_format=2)
    names = ["time", "level", "latitude", "longitude"]
    array = group.create_array("temperature", data=np.round(wave * 1000).astype("<i2"), chunks=(1, *shape))
    array.attrs.update({"_ARRAY_DIMENSIONS": names, "scale_factor": 0.01, "add_offset": 273.0})
    zarr.consolidate_metadata(tmp_path / "era.zarr")
    with serving(tmp_path) as server:
        out = printed("weather", f"{server.url}/era.zarr", "--epochs", "3", "--hours", "2")
    found = [float(loss) for loss in re.findall(r", loss ([\d.]+)", out)]
    assert len(found) == 3
    assert found[-1] < 0.7 * found[0]
    assert set(re.findall(r"(\d+) hours asked", out)) == {str(hours)}
