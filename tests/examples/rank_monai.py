"""What MONAI's array transforms make of a VolumeDataset's items, in its own data set and loader, and in ours."""

from __future__ import annotations

from typing import Any

import monai.data
import torch
from monai.transforms import Compose, NormalizeIntensity, RandFlip, RandScaleIntensity, ScaleIntensityRange

import voxload

Loader = torch.utils.data.DataLoader[Any]


def look(universes: str) -> dict[str, Any]:
    """Return whether epochs are equal to the last bit, by kind of chain, and what type the batches have."""
    fixed = Compose([ScaleIntensityRange(0, 300, 0, 1, clip=True), NormalizeIntensity(channel_wise=True)])
    drawn = Compose(
        [
            ScaleIntensityRange(0, 300, 0, 1),
            RandFlip(prob=0.5, spatial_axis=0),
            RandScaleIntensity(0.5, prob=0.9),
        ]
    )
    items = voxload.VolumeDataset(universes, transform=voxload.AsDict(["x"], lambda item: item["x"]))
    data = voxload.VolumeDataset(universes, transform={"x": fixed})
    monais = monai.data.Dataset(items, fixed)  # type: ignore[arg-type] # takes any map-style data set
    own = list(monai.data.DataLoader(monais, batch_size=2))
    ours = [x for (x,) in voxload.DataLoader(data, batch_size=2, num_workers=2)]
    random = voxload.VolumeDataset(universes, transform={"x": drawn})
    torchs: Loader = torch.utils.data.DataLoader(random, batch_size=2)
    epochs = [_seeded(drawn, loader) for loader in (torchs, voxload.DataLoader(random, batch_size=2, num_workers=2))]
    return {
        "fixed": _are_equal(own, ours),
        "drawn": _are_equal(*epochs),
        "differs": not _are_equal(epochs[0], _seeded(drawn, torchs, seed=1)),
        "type": type(ours[0]).__name__,
    }


def _seeded(chain: Compose, loader: Loader, seed: int = 0) -> list[torch.Tensor]:
    chain.set_random_state(seed)
    return [x for (x,) in loader]


def _are_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(mine, its) for mine, its in zip(one, other, strict=True))
