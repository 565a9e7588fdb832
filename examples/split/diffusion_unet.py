"""A diffusion U-Net of MONAI: noisy blocks and whole time steps go in, and each rank predicts the noise of its block.

torchrun --nproc-per-node=2 examples/split/diffusion_unet.py

With one process it trains to the same losses. Needs MONAI.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from monai.networks.nets import DiffusionModelUNet
from monai.networks.schedulers import DDPMScheduler
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import voxload

SHAPE = (12, 8, 16)


def main() -> None:
    """Learn to tell noise from smooth fields."""
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env((1, 1, int(os.environ["WORLD_SIZE"])))
    torch.manual_seed(0)
    model: nn.Module = DiffusionModelUNet(
        spatial_dims=3,
        in_channels=1,
        out_channels=1,
        num_res_blocks=1,
        channels=(8, 16),
        attention_levels=(False, True),
        norm_num_groups=4,
        num_head_channels=8,
    )
    model = voxload.engine.shard(model, grid, shape=SHAPE)  # the line that splits it
    model = DistributedDataParallel(model)
    scheduler = DDPMScheduler(num_train_timesteps=100)
    criterion = voxload.engine.losses.VoxelLoss(nn.MSELoss(), grid)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    own = (slice(None), slice(None), *grid.block(SHAPE).slices)
    drawn = torch.Generator().manual_seed(1)  # of the data alone: a split network draws numbers, too
    for step in range(4):
        fields, noise = torch.randn(2, 2, 1, *SHAPE, generator=drawn)
        times = torch.randint(0, 100, (2,), generator=drawn)
        fields = nn.functional.avg_pool3d(fields, 3, 1, 1)
        noisy = scheduler.add_noise(fields, noise, times)
        loss = criterion(model(noisy[own], timesteps=times), noise[own])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if grid.rank == 0:
            print(f"step {step}, loss {loss.item()!r}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()  # what the network holds of it is gone
