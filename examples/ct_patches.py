"""Segmentation of scans of many shapes: patches around the organ, as many of each scan as are asked for.

python examples/ct_patches.py "scans/*.h5"

Each file holds a scan ``ct`` and its ``labels``, (D, H, W).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import random_split

import voxload
from voxload.augment import Augment, ClassCentres, Flips


def network() -> nn.Module:
    """Return a small network that keeps the shape of a patch."""
    return nn.Sequential(
        nn.Conv3d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(16, 2, 1),
    )


def train(data: voxload.VolumeDataset, epochs: int) -> Iterator[tuple[float, float]]:
    """Train, and yield each epoch's mean loss on patches for training, and on those held back."""
    torch.manual_seed(0)
    training, validation = random_split(data, [0.75, 0.25])
    loaders = [voxload.DataLoader(part, batch_size=4, shuffle=part is training) for part in (training, validation)]
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        means = []
        for loader in loaders:
            total = 0.0
            for ct, labels in loader:
                with torch.set_grad_enabled(loader is loaders[0]):
                    loss = nn.functional.cross_entropy(model(ct.float() / 1000), labels[:, 0].long())
                if loader is loaders[0]:
                    optimiser.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call] # torch's
                    optimiser.step()
                total += loss.item()
            means.append(total / len(loader))
        yield means[0], means[1]


def main() -> None:
    """Train on patches of the scans that were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scans", help="a pattern")
    parser.add_argument("--patch", type=int, default=16, help="voxels along each axis")
    parser.add_argument("--per-scan", type=int, default=8, help="patches of each scan in an epoch")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    data = voxload.VolumeDataset(
        arguments.scans,
        fields={"ct": "ct", "labels": "labels"},
        patches=voxload.Patches(
            arguments.patch, per_sample=arguments.per_scan, centres=ClassCentres("labels", classes=[0, 1])
        ),
        augment=Augment(Flips(), seed=0),
    )
    print(f"{len(data)} patches an epoch")
    for epoch, (loss, held_back) in enumerate(train(data, arguments.epochs)):
        print(f"epoch {epoch}, loss {loss:.4f}, held back {held_back:.4f}")


if __name__ == "__main__":
    main()
