"""Networks that are small enough to be trained in tests and benchmarks."""

from __future__ import annotations

from torch import nn

from voxload.models import UNet3D


def small_unet() -> nn.Module:
    """Return a U-Net of three levels."""
    return UNet3D(1, 2, widths=(8, 16, 32))
