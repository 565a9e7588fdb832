"""A Fourier neural operator of neuraloperator: each rank transforms its block, and only the modes that are kept travel.

torchrun --nproc-per-node=2 examples/split/fno.py

With one process it trains to the same losses. Needs neuraloperator.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from neuralop.models import FNO
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import voxload

SHAPE = (16, 16, 24)


def main() -> None:
    """Learn to smooth random fields."""
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env((1, 1, int(os.environ["WORLD_SIZE"])))
    torch.manual_seed(0)
    model: nn.Module = FNO((4, 4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
    model = voxload.engine.shard(model, grid, shape=SHAPE)  # the line that splits it
    model = DistributedDataParallel(model)
    criterion = voxload.engine.losses.VoxelLoss(nn.MSELoss(), grid)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    own = (slice(None), slice(None), *grid.block(SHAPE).slices)
    drawn = torch.Generator().manual_seed(1)  # of the data alone: a split network draws numbers, too
    for step in range(4):
        fields = torch.randn(2, 1, *SHAPE, generator=drawn)
        smooth = nn.functional.avg_pool3d(fields, 3, 1, 1)
        loss = criterion(model(fields[own]), smooth[own])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if grid.rank == 0:
            print(f"step {step}, loss {loss.item()!r}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()  # what the network holds of it is gone
