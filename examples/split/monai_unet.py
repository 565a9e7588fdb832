"""A MONAI network in the loop of a bundle's training script, on labelled volumes of a catalogue that ranks share.

torchrun --nproc-per-node=2 examples/split/monai_unet.py

With one process it trains to the same losses. Makes its volumes first. Needs MONAI.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from monai.networks.nets import UNet
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import voxload
from voxload.demo.structures import CLASSES, DENSITY, LABELS, make_structures
from voxload.engine.losses import DiceLoss, VoxelLoss

SIZE = 16


def train(catalog: str, grid: voxload.ProcessGrid) -> None:
    """Train for two epochs, and print each one's loss."""
    data = voxload.VolumeDataset(catalog, fields={"image": DENSITY, "label": LABELS}, grid=grid)
    # The ranks of a sample group draw the same samples; voxload.DataLoader would make this sampler by itself.
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=grid.groups, rank=grid.group)
    loader = voxload.DataLoader(data, batch_size=2, sampler=sampler)
    torch.manual_seed(0)
    model: nn.Module = UNet(3, 1, CLASSES, channels=(8, 16, 32), strides=(2, 2), num_res_units=2, norm="batch")
    model = voxload.engine.shard(model, grid, shape=(SIZE,) * 3)  # the line that splits it
    model = DistributedDataParallel(model)
    by_voxel, dice = VoxelLoss(nn.CrossEntropyLoss(), grid), DiceLoss(grid)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        losses = []
        for image, label in loader:
            prediction, wanted = model(image.float().log1p()), label[:, 0].long()
            loss = by_voxel(prediction, wanted) + dice(prediction, wanted)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        if grid.rank == 0:
            print(f"epoch {epoch}, loss {sum(losses) / len(losses)!r}")
    loader.close()
    data.close()


def main() -> None:
    """Make the data on the first rank, and train."""
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env((1, 1, int(os.environ["WORLD_SIZE"])))
    with tempfile.TemporaryDirectory() as folder:
        place = [os.fspath(make_structures(Path(folder), count=6, size=SIZE, seed=0)) if grid.rank == 0 else ""]
        dist.broadcast_object_list(place)
        train(place[0], grid)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
