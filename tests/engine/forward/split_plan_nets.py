"""A network with layers of all kinds whose weights may be cut."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Deep(nn.Module):
    """Convolutions of all kinds with what stands between them, and a head; 12 features can be dealt out by any grid."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.norm = nn.Conv3d(2, 12, 3, padding=1), nn.BatchNorm3d(12)
        self.second, self.group = nn.Conv3d(12, 24, 3, padding=1, stride=2), nn.GroupNorm(4, 24)
        self.third, self.slopes = nn.Conv3d(24, 12, 3, padding="same"), nn.PReLU(12)
        self.apart, self.instance = nn.Conv3d(12, 24, 3, padding=1, groups=12), nn.InstanceNorm3d(24, affine=True)
        self.up, self.drop = nn.ConvTranspose3d(24, 12, 2, stride=2), nn.Dropout3d(0.0)
        self.wide, self.last = nn.Linear(12, 24), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return numbers of samples."""
        x = functional.max_pool3d(self.norm(self.first(x)).relu(), 3, stride=1, padding=1)
        x = self.third(functional.silu(self.group(self.second(x))))
        x = self.instance(self.apart(self.slopes(x) + x))
        x = functional.interpolate(self.up(x), scale_factor=0.5, mode="trilinear")
        x = functional.adaptive_avg_pool3d(self.drop(x), 2).flatten(2).amax(2)
        result: Tensor = self.last(self.wide(x).relu())
        return result
