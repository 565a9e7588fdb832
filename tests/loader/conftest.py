"""Data that the loader's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

import voxload
from tests.support.settled import settle

SAMPLES = 11


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of eleven raw universes of 8^3 x 4 with two targets each."""
    path = tmp_path_factory.mktemp("universes")
    rng = np.random.default_rng(0)
    for index in range(SAMPLES):
        with h5py.File(path / f"u{index:02}.h5", "w") as file:
            cube = rng.integers(0, 900, (8, 8, 8, 4)).astype("<i2")
            file.create_dataset("full", data=cube, chunks=(4, 4, 4, 4), compression="gzip", shuffle=True)
            file["unitPar"] = rng.uniform(-1, 1, 2)
    settle(path)  # what was written a moment ago is not kept: another write might not show yet
    return path


@pytest.fixture
def data(folder: Path) -> Iterator[voxload.VolumeDataset]:
    """Yield the whole samples as a data set."""
    made = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", targets="unitPar")
    yield made
    made.close()
