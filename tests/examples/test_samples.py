"""Examples train on data in the layouts that people have, behind a server too."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from tests.examples.cases import EXAMPLES
from tests.support import processes
from tests.support.rangeserver import serving
from tests.support.ranks import printed_by_ranks


def losses(out: str) -> list[float]:
    """Return the losses that are among what an example printed."""
    return [float(found) for found in re.findall(r", loss ([\d.]+)", out)]


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
    command = [sys.executable, str(EXAMPLES / "cfd" / "rollout.py"), f"{tmp_path}/*.hdf5", "--epochs", "4"]
    found = losses(processes.run(command, capture_output=True, text=True).stdout)
    assert len(found) == 4
    assert found[-1] < 0.7 * found[0]


@pytest.mark.long
def test_steps_behind_a_server_train(tmp_path: Path) -> None:
    """Packed steps in xarray's layout: windows overlap, and each of two ranks asks for each step once."""
    steps, shape = 40, (3, 12, 16)
    place = np.arange(shape[2]) * 2 * np.pi / shape[2]
    wave = np.sin(place - 0.4 * np.arange(steps).reshape(-1, 1, 1, 1)) + np.zeros((steps, *shape))
    group = zarr.open_group(tmp_path / "era.zarr", mode="w", zarr_format=2)
    names = ["time", "level", "latitude", "longitude"]
    array = group.create_array("temperature", data=np.round(wave * 1000).astype("<i2"), chunks=(1, *shape))
    array.attrs.update({"_ARRAY_DIMENSIONS": names, "scale_factor": 0.01, "add_offset": 273.0})
    zarr.consolidate_metadata(tmp_path / "era.zarr")
    words = ("--epochs", "12", "--picture", str(tmp_path / "weather.png"))
    with serving(tmp_path) as server:
        out = printed_by_ranks(EXAMPLES / "weather" / "train.py", f"{server.url}/era.zarr", *words, ranks=2)
    found = losses(out)
    assert len(found) == 12
    assert found[-1] < 0.7 * found[0]
    assert set(re.findall(r"(\d+) steps read", out)) == {str(steps * 4 // 5)}
