"""nnU-Net's network with deep supervision, its default: a result at each level, each with a loss over whole volumes.

torchrun --nproc-per-node=2 examples/split/nnunet.py

With one process it trains to the same losses. Needs dynamic-network-architectures.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from dynamic_network_architectures.architectures.unet import PlainConvUNet
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import voxload
from voxload.engine.losses import DiceLoss, VoxelLoss

SHAPE, CLASSES = (24, 16, 20), 3
NETWORK: dict[str, Any] = {
    "norm_op": nn.InstanceNorm3d,
    "norm_op_kwargs": {"affine": True},
    "nonlin": nn.LeakyReLU,
    "conv_bias": True,
}


def block(volume: Tensor, grid: voxload.ProcessGrid) -> Tensor:
    """Return this rank's block of whole volumes."""
    own: Any = (..., *grid.block(volume.shape[-3:]).slices)
    return volume[own]


def main() -> None:
    """Learn which voxels are bright."""
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env((1, 1, int(os.environ["WORLD_SIZE"])))
    torch.manual_seed(0)
    model: nn.Module = PlainConvUNet(
        1, 3, (8, 16, 32), nn.Conv3d, 3, (1, 2, 2), 2, CLASSES, 2, deep_supervision=True, **NETWORK
    )
    model = voxload.engine.shard(model, grid, shape=SHAPE)  # the line that splits it
    model = DistributedDataParallel(model)
    by_voxel, dice = VoxelLoss(nn.CrossEntropyLoss(), grid), DiceLoss(grid)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.99, nesterov=True)
    drawn = torch.Generator().manual_seed(1)  # of the data alone: a split network draws numbers, too
    for step in range(4):
        volumes = torch.randn(2, 1, *SHAPE, generator=drawn)
        labels = (volumes[:, 0] > 0).long() + (volumes[:, 0] > 1)
        loss = torch.zeros(())
        for level, found in enumerate(model(block(volumes, grid))):
            shrunk = labels[:, :: 2**level, :: 2**level, :: 2**level]  # as nnU-Net does: the nearest voxel
            wanted = block(shrunk, grid)
            loss = loss + (by_voxel(found, wanted) + dice(found, wanted)) / 2**level
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # torch's
        optimiser.step()
        if grid.rank == 0:
            print(f"step {step}, loss {loss.item()!r}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()  # what the network holds of it is gone
