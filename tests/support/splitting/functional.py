"""FunctionalUNet: a U-Net written as many are: functions in forward, extents that are asked for, several results."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Level(nn.Module):
    """Two convolutions with weights of which the mean is taken off, normalisations, and a gate by the whole's mean."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(inside, outside, 3, padding=1), nn.Conv3d(outside, outside, 3)
        self.norm, self.gate = nn.BatchNorm3d(outside), nn.Linear(outside, outside)

    def forward(self, x: Tensor) -> Tensor:
        """Return a volume of as many voxels."""
        weight = self.first.weight - self.first.weight.mean((1, 2, 3, 4), keepdim=True)
        x = functional.silu(functional.conv3d(x, weight, self.first.bias, padding=1))
        x = self.second(functional.pad(x, (1, 1, 1, 1, 1, 1), mode="replicate"))
        x = functional.group_norm(self.norm(x).relu(), 2)
        batch, channels = x.shape[:2]
        return x * torch.sigmoid(self.gate(x.mean((2, 3, 4)))).view(batch, channels, 1, 1, 1)


class FunctionalUNet(nn.Module):
    """A U-Net that no trace keeps.

    Parameters
    ----------
    channels
        Channels of the volume.
    classes
        Classes of a voxel.
    widths
        Channels of the levels.
    """

    def __init__(self, channels: int, classes: int, widths: Sequence[int]) -> None:
        super().__init__()
        pairs = list(zip((channels, *widths), widths, strict=False))
        self.encoder = nn.ModuleList([Level(*pair) for pair in pairs])
        self.decoder = nn.ModuleList([Level(below + above, above) for above, below in pairs[:0:-1]])
        self.head = nn.Conv3d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a number for each class and voxel."""
        skips: list[Tensor] = []
        for number, level in enumerate(self.encoder):
            x = level(functional.max_pool3d(x, 2) if number else x)
            skips.append(x)
        for level, skip in zip(self.decoder, skips[-2::-1], strict=True):
            x = functional.interpolate(x, size=skip.shape[2:], mode="trilinear", align_corners=False)
            x = level(torch.cat([x, skip], dim=1))
        result: Tensor = self.head(x)
        return result
