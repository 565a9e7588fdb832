"""Networks of segmentation-models-pytorch-3d, with encoders of few levels."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from bench.networking.network import Network, uneven
from bench.networking.video import videos

_PLACE = "segmentation_models_pytorch_3d"
_ENCODER: dict[str, Any] = {"encoder_weights": None, "in_channels": 1, "classes": 2}
_LEVELS: dict[str, Any] = {"encoder_depth": 3}
_WIDTHS: dict[str, Any] = _LEVELS | {"decoder_channels": (16, 8, 8)}
_DEEP: dict[str, Any] = {"decoder_channels": (16, 8, 8, 8, 8)}
"""These encoders have all five levels."""
_STRIDES: dict[str, Any] = {"strides": ((2, 2, 2),) * 3}


def _network(kind: str, encoder: str = "resnet18", *, step: int = 8, least: int = 2, **settings: Any) -> Network:
    def build(_: tuple[int, ...]) -> nn.Module:
        videos()  # which makes torchvision importable
        made: nn.Module = getattr(importlib.import_module(_PLACE), kind)(encoder, **_ENCODER, **settings)
        return made

    return Network(_PLACE, f"{kind}, {encoder}", build, uneven(step, least))


SEGMENTING = (
    _network("Unet", step=32, least=1, **_DEEP),
    _network("Unet", "densenet121", step=32, least=1, **_DEEP),
    _network("Unet", "efficientnet-b0", **_WIDTHS, **_STRIDES),
    _network("Unet", "vgg11", **_WIDTHS, **_STRIDES),
    _network("UnetPlusPlus", **_WIDTHS),
    _network("MAnet", **_WIDTHS, decoder_pab_channels=8),
    _network("Linknet", **_LEVELS),
    _network("FPN", **_LEVELS, decoder_pyramid_channels=32, decoder_segmentation_channels=32, upsampling=1),
    _network("PSPNet", psp_out_channels=8),
    # With its own rates of up to 36, voxels of padding by the hundred thousand are held by each of eight ranks here.
    _network("DeepLabV3Plus", step=32, least=1, decoder_channels=8),
)
"""Theirs."""
