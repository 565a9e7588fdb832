"""Networks of nnU-Net, from its library dynamic-network-architectures, with its defaults but for widths and depth."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from bench.networking.network import Network, uneven
from bench.networking.video import videos

_PLACE = "dynamic_network_architectures"
_LAYERS: dict[str, Any] = {"norm_op": nn.InstanceNorm3d, "norm_op_kwargs": {"affine": True}, "conv_bias": True}
_LAYERS |= {"nonlin": nn.LeakyReLU, "nonlin_kwargs": {"inplace": True}}
_IMAGES: dict[str, Any] = _LAYERS | {"norm_op": nn.InstanceNorm2d}
_THIN = ((1, 3, 3), (3, 3, 3), (3, 3, 3)), ((1, 1, 1), (1, 2, 2), (2, 2, 2))
"""Kernels and strides for volumes of thick slices."""


def _network(name: str, kind: str, *, thin: bool = False, images: bool = False, **more: Any) -> Network:
    """Return a U-Net of three levels."""
    kernels, strides = _THIN if thin else (3, (1, 2, 2))
    conv = nn.Conv2d if images else nn.Conv3d
    layers = (_IMAGES if images else _LAYERS) | more

    def build(_: tuple[int, ...]) -> nn.Module:
        place = importlib.import_module(f"{_PLACE}.architectures.unet")
        made: nn.Module = getattr(place, kind)(1, 3, (4, 8, 16), conv, kernels, strides, 2, 2, 1, **layers)
        return made

    shape, large = ((24, 40), (2048, 1024)) if images else (uneven(4), (128, 128, 128))
    return Network(_PLACE, name, build, shape, large=large)


def _primus(shape: tuple[int, ...]) -> nn.Module:
    videos()  # timm, which it takes attention from, imports torchvision
    place = importlib.import_module(f"{_PLACE}.architectures.primus")
    made: nn.Module = place.Primus(1, 48, (8, 8, 8), 2, eva_depth=2, eva_numheads=2, input_shape=shape)
    return made


NNUNET = (
    _network("PlainConvUNet", "PlainConvUNet"),
    _network("PlainConvUNet, deep supervision", "PlainConvUNet", deep_supervision=True),
    _network("PlainConvUNet, deep supervision, thick slices", "PlainConvUNet", thin=True, deep_supervision=True),
    _network("PlainConvUNet, images", "PlainConvUNet", images=True),
    _network("ResidualEncoderUNet", "ResidualEncoderUNet"),
    _network("ResidualEncoderUNet, deep supervision", "ResidualEncoderUNet", deep_supervision=True),
    _network("ResidualUNet, deep supervision", "ResidualUNet", deep_supervision=True),
    Network(_PLACE, "Primus", _primus, uneven(8)),
)
"""Theirs."""
