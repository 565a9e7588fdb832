"""MONAI's dictionary transforms, sample by sample: of MONAI's own data set and loader, or of voxload's.

python examples/frameworks/monai_transforms.py universes/ --loader voxload

With ``--loader monai voxload`` it trains twice, to the same losses.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import monai.data
import torch
from monai.transforms import Compose, EnsureTyped, GaussianSmoothd, NormalizeIntensityd, ScaleIntensityRanged
from torch import nn

import voxload

CHAIN = Compose(
    [
        ScaleIntensityRanged("x", a_min=0, a_max=300, b_min=0, b_max=1, clip=True),
        GaussianSmoothd("x", sigma=0.5),
        NormalizeIntensityd("x", channel_wise=True),
        EnsureTyped(["x", "y"], track_meta=False),
    ]
)


def monais(universes: str) -> torch.utils.data.DataLoader[Any]:
    """Return MONAI's loader over MONAI's data set, which transforms what a VolumeDataset reads."""
    items = voxload.VolumeDataset(universes, targets=["Omega_m", "sigma_8"], transform=voxload.AsDict(["x", "y"], dict))
    generator = torch.Generator().manual_seed(0)
    data = monai.data.Dataset(items, CHAIN)  # type: ignore[arg-type] # asks for a list, and takes any map-style data set
    return monai.data.DataLoader(data, batch_size=2, shuffle=True, generator=generator)


def voxloads(universes: str) -> torch.utils.data.DataLoader[Any]:
    """Return voxload's loader over a VolumeDataset that transforms its items."""
    data = voxload.VolumeDataset(universes, targets=["Omega_m", "sigma_8"], transform=voxload.AsDict(["x", "y"], CHAIN))
    generator = torch.Generator().manual_seed(0)
    return voxload.DataLoader(data, batch_size=2, shuffle=True, generator=generator)


LOADERS = {"monai": monais, "voxload": voxloads}


def train(loader: torch.utils.data.DataLoader[Any]) -> Iterator[float]:
    """Train for two epochs and yield each epoch's mean loss."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv3d(4, 8, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool3d(4),
        nn.Conv3d(8, 16, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool3d(4),
        nn.Flatten(),
        nn.Linear(16 * 2**3, 2),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        total = 0.0
        for batch in loader:
            loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            optimiser.step()
            total += loss.item()
        yield total / len(loader)


def main() -> None:
    """Train with each loader that was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("universes", help="a catalogue or its folder")
    parser.add_argument("--loader", nargs="+", choices=LOADERS, default=["voxload"])
    arguments = parser.parse_args()
    for name in arguments.loader:
        for epoch, loss in enumerate(train(LOADERS[name](arguments.universes))):
            print(f"{name}: epoch {epoch}, loss {loss!r}")


if __name__ == "__main__":
    main()
