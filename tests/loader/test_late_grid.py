"""Grids of three counts: loaders that are made before the job knows its ranks split samples rightly all the same."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import h5py
import pytest
from torch.utils.data import DistributedSampler

import voxload
from tests.support.ranks import printed_by_ranks
from voxload.errors import UsageError
from voxload.launch.jobgrid import JobGrid
from voxload.loader.sampler import GroupSampler

RANKS = 4


@pytest.mark.long
def test_loaders_made_before_the_job_split_samples(folder: Path, tmp_path: Path) -> None:
    """Four ranks make loaders, then init_process_group: two groups of two halves, all samples shared out."""
    script = Path(__file__).parent / "late_grid.py"
    done = printed_by_ranks(script, folder, tmp_path / "meeting", ranks=RANKS)
    ranks = sorted((json.loads(line) for line in done.splitlines()), key=lambda row: int(row["rank"]))
    assert len(ranks) == RANKS
    wholes = []
    for path in sorted(folder.glob("*.h5")):
        with h5py.File(path) as file:
            cube = file["full"][()]
            wholes.append([int(cube[:4].sum()), int(cube[4:].sum())])
    for row in ranks:
        assert row["is_open"]
        assert row["is_copy_known"]
        assert row["grid"] == [[2, 1, 1], RANKS, row["rank"]]
        assert row["shape"] == [1, 4, 4, 8, 8]
        assert row["length"] == len(wholes) // 2
        assert row["sums"] == [[wholes[index][row["rank"] % 2] for index in drawn] for drawn in _orders(row["rank"])]


def _orders(rank: int) -> list[list[int]]:
    """Return what torch's own sampler over the groups draws in two epochs."""
    data: Any = range(11)  # torch asks for a Dataset and uses its length only
    sampler: DistributedSampler[int] = DistributedSampler(data, num_replicas=2, rank=rank // 2, drop_last=True)
    found = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        found.append(list(sampler))
    return found


def test_without_a_job_the_launcher_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts become a grid at first use, by what the environment says then; copies made before go their own way."""
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=[2, 1, 1])
    loader = voxload.DataLoader(data, batch_size=2)
    copied = pickle.loads(pickle.dumps(data))  # noqa: S301 - made here
    assert isinstance(loader.sampler, GroupSampler)
    assert not data.is_grid_known
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert len(loader) == 3
    assert data.grid == voxload.ProcessGrid((2, 1, 1), 4, 2)
    assert data.grid is data.grid
    monkeypatch.setenv("RANK", "1")
    assert copied.grid.rank == 1
    data.close()


def test_a_world_that_does_not_fit_is_refused_at_first_use(folder: Path) -> None:
    """What the ranks cannot be divided into is said when they are known, and what is no grid at once."""
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=(2, 2, 1))
    loader = voxload.DataLoader(data)
    with pytest.raises(UsageError, match="expected a multiple of 4"):
        len(loader)
    for wrong in ((2, 2), (0, 1, 1), (1.5, 1, 1)):
        with pytest.raises(UsageError, match="three counts of 1 or more"):
            JobGrid(wrong)  # type: ignore[arg-type] # a float is none


def test_a_sampler_over_ranks_is_refused_when_they_are_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that would give the ranks of a group different samples is refused before the first batch."""
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=(2, 1, 1))
    loader = voxload.DataLoader(data, sampler=DistributedSampler(data, num_replicas=4, rank=3))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UsageError, match="found rank 3 of 4, expected group 1 of 2"):
        iter(loader)
    data.close()
