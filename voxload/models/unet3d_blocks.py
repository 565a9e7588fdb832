"""The blocks of UNet3D: two convolutions on the way down, and two after an upsampling on the way up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]
"""Makes the normalisation of a number of channels."""


class EncoderBlock(nn.Module):
    """Two convolutions over 3x3x3 voxels, each normalised and rectified; before them what halves the extents, if any.

    Parameters
    ----------
    before
        Channels of the input.
    widths
        Channels that the two convolutions make.
    norm
        Makes the normalisations.
    pools
        Take the maximum of 2x2x2 voxels first.
    stride
        Stride of the first convolution; 2 halves even extents.
    """

    def __init__(self, before: int, widths: tuple[int, int], norm: Norm, *, pools: bool, stride: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool3d(2) if pools else nn.Identity()
        self.first = _convolution(before, widths[0], norm, stride=stride)
        self.second = _convolution(widths[0], widths[1], norm)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, widths[1], d, h, w) for (B, before, D, H, W)."""
        features: Tensor = self.second(self.first(self.pool(x)))
        return features


class DecoderBlock(nn.Module):
    """An upsampling, then two convolutions over 3x3x3 voxels of its result and what the encoder had at that level.

    Parameters
    ----------
    below
        Channels of the input.
    up
        Channels of the input after its extents were doubled.
    width
        Channels of the encoder's features, and of the result.
    norm
        Makes the normalisations.
    bias
        Whether the upsampling has a bias.
    """

    def __init__(self, below: int, up: int, width: int, norm: Norm, *, bias: bool) -> None:
        super().__init__()
        self.up = nn.ConvTranspose3d(below, up, 2, stride=2, bias=bias)
        self.first = _convolution(up + width, width, norm)
        self.second = _convolution(width, width, norm)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Return (B, width, 2d, 2h, 2w).

        Parameters
        ----------
        x
            (B, below, d, h, w), from the level below.
        skip
            (B, width, 2d, 2h, 2w), from the encoder.
        """
        # Both sources put the upsampled channels first; weights trained there fit only in this order.
        joined = torch.cat((self.up(x), skip), 1)
        features: Tensor = self.second(self.first(joined))
        return features


def _convolution(before: int, after: int, norm: Norm, *, stride: int = 1) -> nn.Sequential:
    """Return one convolution with its normalisation, which takes away any bias, and its rectifier."""
    layers: list[tuple[str, nn.Module]] = [
        ("conv", nn.Conv3d(before, after, 3, stride, padding=1, bias=False)),
        ("norm", norm(after)),
        ("relu", nn.ReLU()),
    ]
    return nn.Sequential(OrderedDict(layers))
