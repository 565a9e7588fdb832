"""Numbers of each time step in items and batches: those of an item's own steps."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import voxload
from voxload.data.lists.window import Window
from voxload.errors import DataError, NotFoundError, VoxloadError


def _with_times(folder: Path, count: int = 6) -> Path:
    """Write a run with a time and a forcing for each step."""
    with h5py.File(folder / "run.h5", "w") as file:
        file["u"] = np.arange(6 * 8, dtype="<f4").reshape(6, 2, 2, 2)
        file["time"] = np.arange(count) * 86400.0 + 1.7e9 + 0.25
        file["day"] = np.arange(count)
        file["flat"] = np.zeros((6, 2))
        file["holes"] = np.where(np.arange(6) == 3, np.nan, 1.0)
    return folder / "run.h5"


def test_numbers_of_each_step_go_with_a_window(tmp_path: Path) -> None:
    """Each item has those of its own steps, in full, also in batches, patches and subsets."""
    path = _with_times(tmp_path)
    words: dict[str, Any] = {"fields": {"u": "u"}, "axes": "TDHW", "columns": ["time", "sample", "day"]}
    data = voxload.VolumeDataset(path, window=Window(2, horizon=1, step=2), **words)
    times = np.arange(6) * 86400.0 + 1.7e9 + 0.25
    for number in range(2):
        *_, time, name, day = data[number]
        assert time.dtype == torch.float64
        assert time.tolist() == times[[number, number + 2, number + 4]].tolist()
        assert (name, day.tolist()) == (f"run[t{number}]", [number, number + 2, number + 4])
    with closing(voxload.DataLoader(data, batch_size=2)) as loader:
        for found, wanted in zip(next(iter(loader))[2:], next(iter(DataLoader(data, batch_size=2)))[2:], strict=True):
            assert found.equal(wanted) if isinstance(found, torch.Tensor) else list(found) == list(wanted)
    assert data.subset([1])[0][2].tolist() == times[[1, 3, 5]].tolist()
    single = voxload.VolumeDataset(path, **words)
    assert [single[step][1].item() for step in range(6)] == times.tolist()
    patched = voxload.VolumeDataset(path, window=Window(2), patches=voxload.Patches(1, stride=1), **words)
    assert patched[9][1].tolist() == times[1:3].tolist()


@pytest.mark.parametrize(
    ("name", "count", "error", "message"),
    [
        ("time", 5, DataError, "found 5 values, expected 6 finite numbers"),
        ("holes", 6, DataError, "not finite"),
        ("none", 6, NotFoundError, "none"),
        ("flat", 6, VoxloadError, "flat"),
    ],
)
def test_numbers_that_are_none_of_each_step(
    tmp_path: Path, name: str, count: int, error: type[Exception], message: str
) -> None:
    """A dataset of another length, with holes, or none at all."""
    with pytest.raises(error, match=message):
        voxload.VolumeDataset(_with_times(tmp_path, count), fields={"u": "u"}, axes="TDHW", columns=name)
