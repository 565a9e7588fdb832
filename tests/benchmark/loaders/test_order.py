"""Orders: they are torch's over sample groups, and those of voxload's own loader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

import voxload
from voxload.benchmark.loaders.protocol import epoch_indices, group_sampler
from voxload.benchmark.workload.workload import Share
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.prefetch.order.source import OrderSource

SAMPLES = 23


@pytest.mark.parametrize("order", ["shuffled", "sequential"])
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_groups_share_samples_as_torch_deals_them(order: str, groups: int) -> None:
    """Each group gets what torch's sampler over groups gives; all as many, and none twice."""
    share = Share((1, 1, 2), order=order, seed=5)
    for epoch in (0, 3):
        dealt: list[int] = []
        for group in range(groups):
            torchs: DistributedSampler[int] = DistributedSampler(
                range(SAMPLES),  # type: ignore[arg-type] # only its length matters
                num_replicas=groups,
                rank=group,
                shuffle=order == "shuffled",
                seed=5,
                drop_last=True,
            )
            torchs.set_epoch(epoch)
            first, second = (
                epoch_indices(share, SAMPLES, ProcessGrid((1, 1, 2), 2 * groups, 2 * group + place), epoch)
                for place in range(2)
            )
            assert first == second == tuple(torchs)
            assert len(first) == SAMPLES // groups
            dealt += first
        assert len(set(dealt)) == len(dealt)


def test_shuffled_epochs_differ_and_seeds_too() -> None:
    """An epoch has an order of its own; so has a seed."""
    grid = ProcessGrid()
    orders = {epoch_indices(Share(seed=seed), SAMPLES, grid, epoch) for seed in (0, 100) for epoch in (0, 1)}
    assert len(orders) == 4
    assert epoch_indices(Share(order="sequential"), SAMPLES, grid, 1) == tuple(range(SAMPLES))


def test_too_few_samples_are_refused() -> None:
    """A group without a sample would have no steps."""
    with pytest.raises(UsageError, match="3 for 4 sample groups"):
        epoch_indices(Share(), 3, ProcessGrid((1, 1, 1), 4, 0), 0)


@pytest.fixture
def data(tmp_path: Path) -> voxload.VolumeDataset:
    """Return small samples, whose only voxel is their index, as one of two groups sees them."""
    for index in range(SAMPLES - 1):
        np.save(tmp_path / f"s{index:02}.npy", np.full((1, 1, 1), index, np.int16))
    return voxload.VolumeDataset(f"{tmp_path}/*.npy", grid=ProcessGrid((1, 1, 1), 2, 1))


@pytest.mark.parametrize("is_shuffled", [True, False])
def test_the_loader_draws_and_foresees_it(data: voxload.VolumeDataset, *, is_shuffled: bool) -> None:
    """It is what voxload's loader gives by itself for the seed, and what it knows of epochs ahead."""
    share = Share(order="shuffled" if is_shuffled else "sequential", seed=9)
    wanted = [epoch_indices(share, len(data), data.grid, epoch) for epoch in range(3)]
    plain = voxload.DataLoader(data, 4, shuffle=is_shuffled, generator=torch.Generator().manual_seed(9))
    for epoch in range(2):
        assert tuple(int(voxel) for (batch,) in plain for voxel in batch.flatten()) == wanted[epoch]
    plain.close()
    sampler = group_sampler(share, len(data), data.grid)
    source = OrderSource(voxload.DataLoader(data, 4, sampler=sampler), data.grid, advancing=(type(sampler),))
    sampler.set_epoch(0)
    source.begin_epoch()
    assert source.horizon.epochs is None
    assert source.horizon.is_of_line
    ahead = source.own_ahead(3)
    assert [tuple(order[order >= 0].tolist()) for order in ahead] == wanted
    iter(sampler)
    sampler.set_epoch(1)
    assert source.begin_epoch()
    data.close()
