"""Networks of five kinds, small enough for two cores, none of which a calibration has seen."""

from __future__ import annotations

from monai.networks.nets import BasicUNet, SegResNet
from torch import Tensor, nn
from torch.nn import functional

from voxload.models import CosmoFlow, UNet3D


class Bottleneck(nn.Module):
    """A residual block of 1x1x1, 3x3x3 and 1x1x1 convolutions (He et al., CVPR 2016)."""

    def __init__(self, before: int, width: int, *, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.reduce, self.reduce_norm = nn.Conv3d(before, width, 1, bias=False), nn.BatchNorm3d(width)
        self.conv, self.norm = nn.Conv3d(width, width, 3, stride, 1, bias=False), nn.BatchNorm3d(width)
        self.grow, self.grow_norm = nn.Conv3d(width, after, 1, bias=False), nn.BatchNorm3d(after)
        self.skip = nn.Identity() if stride == 1 and before == after else nn.Conv3d(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 4 width, d, h, w)."""
        y = functional.relu(self.reduce_norm(self.reduce(x)))
        y = functional.relu(self.norm(self.conv(y)))
        y = self.grow_norm(self.grow(y)) + self.skip(x)
        return functional.relu(y)


class ResNet(nn.Module):
    """Numbers of volumes, by residual blocks and a mean."""

    def __init__(self, channels: int = 2, width: int = 16) -> None:
        super().__init__()
        self.stem, self.pool = nn.Conv3d(channels, width, 5, 2, 2), nn.MaxPool3d(3, 2, 1)
        self.blocks = nn.ModuleList(
            [
                Bottleneck(width, width, stride=1),
                Bottleneck(4 * width, width, stride=1),
                Bottleneck(4 * width, 2 * width, stride=2),
                Bottleneck(8 * width, 2 * width, stride=1),
            ]
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8 * width, 8))

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 8)."""
        x = self.pool(functional.relu(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        numbers: Tensor = self.head(x)
        return numbers


def cosmoflow() -> nn.Module:
    """Return CosmoFlow for cubes of 64 voxels."""
    return CosmoFlow(64, 4)


def unet() -> nn.Module:
    """Return a U-Net of three levels."""
    return UNet3D(1, 2, widths=(12, 24, 48))


def basic_unet() -> nn.Module:
    """Return MONAI's BasicUNet with few features."""
    return BasicUNet(spatial_dims=3, in_channels=1, out_channels=2, features=(8, 8, 16, 32, 64, 8))


def segresnet() -> nn.Module:
    """Return MONAI's SegResNet with few filters."""
    return SegResNet(
        spatial_dims=3, init_filters=8, in_channels=2, out_channels=3, blocks_down=(1, 2, 2), blocks_up=(1, 1)
    )


def resnet() -> nn.Module:
    """Return a residual network of four blocks."""
    return ResNet()


SAMPLES = {
    "cosmoflow": (4, 64, 64, 64),
    "unet": (1, 64, 64, 64),
    "basic_unet": (1, 64, 64, 64),
    "segresnet": (2, 64, 64, 64),
    "resnet": (2, 96, 96, 96),
}
"""Channels and extents of what each is trained on."""
