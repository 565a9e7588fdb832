"""Denoising of one huge volume without labels: patches at random places, kept near as pieces of the volume.

python examples/huge_volume.py brain.zarr --memory 8GiB

A network that never sees a voxel's own value learns to tell it from those around it: what it tells is the signal, for
noise of neighbours says nothing of a voxel's (Noise2Void, Krull et al., CVPR 2019).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from torch import nn

import voxload
from voxload.augment import Augment, CubeSymmetries

HIDDEN = 0.02
"""Share of the voxels of a patch that are hidden from the network, which has to tell them."""


def network() -> nn.Module:
    """Return a small network that keeps the shape of a patch."""
    return nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 1, 3, padding=1))


def train(data: voxload.VolumeDataset, cache: voxload.Cache, epochs: int) -> Iterator[tuple[float, str]]:
    """Train, and yield each epoch's mean loss, and where its pieces came from."""
    torch.manual_seed(0)
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = voxload.DataLoader(data, batch_size=8, shuffle=True, cache=cache)
    for _ in range(epochs):
        total = 0.0
        for (patches,) in loader:
            voxels = patches.float()
            voxels = (voxels - voxels.mean()) / voxels.std().clamp_min(1e-6)
            hidden = torch.rand_like(voxels) < HIDDEN
            neighbours = torch.roll(voxels, 1, dims=-1)
            loss = (model(torch.where(hidden, neighbours, voxels)) - voxels)[hidden].square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item()
        sources = loader.stats().sources
        yield total / len(loader), ", ".join(f"{one.fetches} from {kind}" for kind, one in sources.items())
    loader.close()


def main() -> None:
    """Train on patches of the volume that was named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("volume", help="a file or a Zarr array, or its URL")
    parser.add_argument("--patch", type=int, default=16, help="voxels along each axis")
    parser.add_argument("--patches", type=int, default=256, help="patches of an epoch")
    parser.add_argument("--memory", default="1GiB", help="of this node, for pieces of the volume")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    data = voxload.VolumeDataset(
        arguments.volume,
        patches=voxload.Patches(arguments.patch, per_sample=arguments.patches),
        augment=Augment(CubeSymmetries(), seed=0),
    )
    cache = voxload.Cache(memory=arguments.memory)
    for epoch, (loss, sources) in enumerate(train(data, cache, arguments.epochs)):
        print(f"epoch {epoch}, loss {loss:.4f}; pieces so far: {sources}")


if __name__ == "__main__":
    main()
