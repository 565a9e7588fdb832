"""Spatial parallelism: two ranks share each sample, each reads its own half, and the network runs across both.

torchrun --nproc-per-node=2 examples/frameworks/spatial.py universes/ --loader voxload

With ``--loader torch voxload`` it trains twice, to the same losses.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import voxload

LOADERS = {"torch": torch.utils.data.DataLoader, "voxload": voxload.DataLoader}


def network() -> nn.Module:
    """Return a small regression network for universes of 32^3 x 4."""
    return nn.Sequential(
        nn.Conv3d(4, 8, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool3d(4),
        nn.Conv3d(8, 16, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool3d(4),
        nn.Flatten(),
        nn.Linear(16 * 2**3, 2),
    )


def train(make_loader: type[torch.utils.data.DataLoader[Any]], data: voxload.VolumeDataset) -> Iterator[float]:
    """Train for two epochs and yield each epoch's mean loss over all ranks."""
    torch.manual_seed(0)
    model = DistributedDataParallel(voxload.engine.shard(network(), data.grid, shape=(32, 32, 32)))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    # The ranks of a sample group draw the same samples; voxload.DataLoader would make this sampler by itself.
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=data.grid.groups, rank=data.grid.group)
    # Not forked: this process has threads by now, whose locks a fork would copy as they are.
    loader = make_loader(
        data,
        batch_size=2,
        sampler=sampler,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.float().log1p()), y)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            optimiser.step()
            total += loss.detach()
        dist.all_reduce(total)
        yield total.item() / len(loader) / dist.get_world_size()


def main() -> None:
    """Train with each loader that was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("universes", help="a catalogue or its folder")
    parser.add_argument("--loader", nargs="+", choices=LOADERS, default=["voxload"])
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env(spatial=(2, 1, 1))
    data = voxload.VolumeDataset(arguments.universes, targets=["Omega_m", "sigma_8"], grid=grid)
    for name in arguments.loader:
        for epoch, loss in enumerate(train(LOADERS[name], data)):
            if dist.get_rank() == 0:
                print(f"{name}: epoch {epoch}, loss {loss!r}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
