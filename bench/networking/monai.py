"""Networks of MONAI, of few channels and levels; one of each family in the form in which it is used."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from bench.networking.network import Network


def _net(name: str, *words: Any, **settings: Any) -> Any:
    """Return what makes a network of MONAI; the library is imported then."""

    def build() -> nn.Module:
        made: nn.Module = getattr(importlib.import_module("monai.networks.nets"), name)(*words, **settings)
        return made

    return build


def _network(name: str, build: Any, step: int = 8, least: int = 2, channels: int = 1) -> Network:
    return Network("monai", name, build, step, least, channels)


_DYN: dict[str, Any] = {"filters": [4, 8, 16]}
_VAE: dict[str, Any] = {"spatial_dims": 3, "in_channels": 1, "out_channels": 1, "num_res_blocks": 1}
_VAE |= {"channels": (8, 8), "attention_levels": (False, False), "latent_channels": 2, "norm_num_groups": 4}
_VAE |= {"with_encoder_nonlocal_attn": False, "with_decoder_nonlocal_attn": False}
_RES: dict[str, Any] = {"spatial_dims": 3, "n_input_channels": 1, "num_classes": 2, "feed_forward": True}
_SE: dict[str, Any] = {"spatial_dims": 3, "in_channels": 1, "num_classes": 2, "layers": (1, 1, 1, 1)}
MONAI = (
    _network("BasicUNet", _net("BasicUNet", 3, 1, 2, features=(4, 4, 8, 8, 16, 4)), 16),
    _network("BasicUNetPlusPlus", _net("BasicUNetPlusPlus", 3, 1, 2, features=(4, 4, 8, 8, 16, 4)), 16),
    _network("UNet, residual", _net("UNet", 3, 1, 2, (4, 8, 16), (2, 2), num_res_units=2), 4),
    _network("UNet, batch norm", _net("UNet", 3, 1, 2, (4, 8, 16), (2, 2), norm="batch"), 4),
    _network("AttentionUnet", _net("AttentionUnet", 3, 1, 2, (4, 8, 16), (2, 2)), 4),
    _network("DynUNet", _net("DynUNet", 3, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], **_DYN), 4),
    _network(
        "DynUNet, deep supervision",
        _net("DynUNet", 3, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], deep_supervision=True, deep_supr_num=1, **_DYN),
        4,
    ),
    _network("SegResNet", _net("SegResNet", 3, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,)), 4),
    _network("SegResNetDS", _net("SegResNetDS", 3, 8, 1, 2, blocks_down=(1, 1, 1), dsdepth=2), 8),
    _network("VNet", _net("VNet", 3, 1, 2), 16),
    _network("HighResNet", _net("HighResNet", 3, 1, 2), 4),
    _network("DenseNet121", _net("DenseNet121", 3, 1, 2), 32),
    _network("ResNet18", _net("resnet18", **_RES), 32),
    _network("SEResNet50", _net("SEResNet50", **_SE), 32),
    _network("SEResNext50", _net("SEResNext50", **_SE), 32),
    _network("EfficientNet-B0", _net("EfficientNetBN", "efficientnet-b0", False, True, 3, 1, 2), 32),  # noqa: FBT003 - its own order
    _network("MedNeXt", _net("MedNeXt", 3, 4, 1, 2), 16),
    _network("AutoEncoder", _net("AutoEncoder", 3, 1, 1, (4, 8), (2, 2)), 4),
    _network("AutoencoderKL, without attention", _net("AutoencoderKL", **_VAE), 4),
    _network("VQVAE", _net("VQVAE", 3, 1, 1, channels=(8, 8), num_res_channels=(8, 8), num_res_layers=1), 4),
    _network("PatchDiscriminator", _net("PatchDiscriminator", 3, 4, 1, num_layers_d=2), 8),
    _network("SwinUNETR", _net("SwinUNETR", 1, 2, feature_size=12, spatial_dims=3, depths=(1, 1, 1, 1)), 32),
    _network("RegUNet", _net("RegUNet", 3, 1, 4, 2), 4),
    _network("LocalNet", _net("LocalNet", 3, 1, 4, [0, 1], "kaiming_uniform", out_channels=3, out_activation=None), 4),
)
"""Theirs."""
