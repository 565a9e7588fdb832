"""Networks of MONAI, of few channels and levels; one of each family in the form in which it is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.networking.network import Network, nothing, uneven

Build = Callable[[tuple[int, ...]], nn.Module]


def _net(name: str, *words: Any, **settings: Any) -> Build:
    """Return what makes a network of MONAI; the library is imported then."""
    return lambda _: _class(name)(*words, **settings)


def _class(name: str) -> Any:
    return getattr(importlib.import_module("monai.networks.nets"), name)


def _network(name: str, build: Build, step: int = 8, least: int = 2, channels: int = 1) -> Network:
    return Network("monai", name, build, uneven(step, least), channels)


def _made(name: str, build: Build, shape: tuple[int, ...] = (48, 32, 64), args: Any = nothing) -> Network:
    """Return a network that is made for volumes of one shape, or takes more than a volume."""
    return Network("monai", name, build, shape, args=args)


def _steps(shape: tuple[int, ...]) -> tuple[Any, ...]:  # noqa: ARG001 - as others have it
    """Return the time steps of a diffusion network."""
    return (torch.tensor([1, 7]),)


def _steps_and_labels(shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return time steps, and a volume of two labels that conditions the result."""
    return (*_steps(shape), _volume(2, shape))


def _volume(channels: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(2, channels, *shape, generator=torch.Generator().manual_seed(1))


def _morph(_: tuple[int, ...]) -> nn.Module:
    inner = _class("VoxelMorphUNet")(3, 2, 8, **_MORPH)
    made: nn.Module = _class("VoxelMorph")(inner, integration_steps=2)
    return made


_DYN: dict[str, Any] = {"filters": [4, 8, 16]}
_VAE: dict[str, Any] = {"spatial_dims": 3, "in_channels": 1, "out_channels": 1, "num_res_blocks": 1}
_VAE |= {"channels": (8, 8), "attention_levels": (False, False), "latent_channels": 2, "norm_num_groups": 4}
_VAE |= {"with_encoder_nonlocal_attn": False, "with_decoder_nonlocal_attn": False}
_RES: dict[str, Any] = {"spatial_dims": 3, "n_input_channels": 1, "num_classes": 2, "feed_forward": True}
_SE: dict[str, Any] = {"spatial_dims": 3, "in_channels": 1, "num_classes": 2, "layers": (1, 1, 1, 1)}
_VIT: dict[str, Any] = {"hidden_size": 24, "mlp_dim": 32, "num_layers": 2, "num_heads": 2}
_DIFFUSION: dict[str, Any] = {"num_res_blocks": 1, "channels": (8, 8), "norm_num_groups": 4, "num_head_channels": 4}
_SEG: dict[str, Any] = {"init_filters": 8, "out_channels": 2, "blocks_down": (1, 1, 1), "blocks_up": (1, 1)}
_THREE: dict[str, Any] = {"spatial_dims": 3}
_MORPH: dict[str, Any] = {"channels": (8, 8, 8, 8), "final_conv_channels": (4, 4)}
_FLEX = (16, 8, 8, 4, 4)
_PATCH = (16, 16, 16)
_VQ: dict[str, Any] = {"channels": (8, 8), "num_res_channels": (8, 8), "num_res_layers": 1, "num_embeddings": 16}
_VQ |= {"downsample_parameters": ((2, 4, 1, 1),) * 2, "upsample_parameters": ((2, 4, 1, 1, 0),) * 2}
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
    _network("SegResNetDS2", _net("SegResNetDS2", 3, 8, 1, 2, blocks_down=(1, 1, 1), dsdepth=2), 8),
    _network("VNet", _net("VNet", 3, 1, 2), 16),
    _network("HighResNet", _net("HighResNet", 3, 1, 2), 4),
    _network("FlexibleUNet", _net("FlexibleUNet", 1, 2, "efficientnet-b0", decoder_channels=_FLEX, **_THREE), 32, 1),
    _network("VoxelMorphUNet", _net("VoxelMorphUNet", 3, 2, 8, **_MORPH), 8, 2, 2),
    _network("DenseNet121", _net("DenseNet121", 3, 1, 2), 32, 1),
    _network("ResNet18", _net("resnet18", **_RES), 16, 1),
    _network("SEResNet50", _net("SEResNet50", **_SE), 16, 1),
    _network("SEResNext50", _net("SEResNext50", **_SE), 16, 1),
    _network("EfficientNet-B0", _net("EfficientNetBN", "efficientnet-b0", False, True, 3, 1, 2), 32, 1),  # noqa: FBT003 - its own order
    _network("MedNeXt", _net("MedNeXt", 3, 4, 1, 2), 16),
    _network("AutoEncoder", _net("AutoEncoder", 3, 1, 1, (4, 8), (2, 2)), 4),
    _network("AutoencoderKL, without attention", _net("AutoencoderKL", **_VAE), 4),
    _network("AutoencoderKL, with attention", _net("AutoencoderKL", **_VAE | {"with_encoder_nonlocal_attn": True}), 4),
    _network("VQVAE", _net("VQVAE", 3, 1, 1, embedding_dim=4, **_VQ), 4),
    _network("PatchDiscriminator", _net("PatchDiscriminator", 3, 4, 1, num_layers_d=2), 8),
    _network(
        "MultiScalePatchDiscriminator",
        _net("MultiScalePatchDiscriminator", num_d=2, num_layers_d=1, spatial_dims=3, channels=4, in_channels=1),
    ),
    _network("SwinUNETR", _net("SwinUNETR", 1, 2, feature_size=12, spatial_dims=3, depths=(1, 1, 1, 1)), 32, 1),
    _network(
        "SwinUNETR, version 2",
        _net("SwinUNETR", 1, 2, feature_size=12, spatial_dims=3, depths=(1, 1, 1, 1), use_v2=True),
        32,
        1,
    ),
    _network("RegUNet", _net("RegUNet", 3, 1, 4, 2), 4),
    _network("LocalNet", _net("LocalNet", 3, 1, 4, [0, 1], "kaiming_uniform", out_channels=3, out_activation=None), 4),
    _made("UNETR", lambda shape: _class("UNETR")(1, 2, shape, feature_size=4, hidden_size=24, mlp_dim=32, num_heads=2)),
    _made("ViT", lambda shape: _class("ViT")(1, shape, _PATCH, classification=True, num_classes=2, **_VIT)),
    _made("ViTAutoEnc", lambda shape: _class("ViTAutoEnc")(1, shape, _PATCH, deconv_chns=4, **_VIT)),
    _made("SegResNetVAE", lambda shape: _class("SegResNetVAE")(shape, 8, spatial_dims=3, **_SEG), (24, 16, 32)),
    _made("VarAutoEncoder", lambda shape: _class("VarAutoEncoder")(3, (1, *shape), 1, 4, (4, 8), (2, 2)), (24, 16, 32)),
    _made("VoxelMorph", _morph, (24, 16, 32), lambda shape: (_volume(1, shape),)),
    _made(
        "DiffusionModelUNet",
        _net("DiffusionModelUNet", 3, 1, 1, attention_levels=(False, True), **_DIFFUSION),
        (12, 8, 16),
        _steps,
    ),
    _made(
        "SPADEDiffusionModelUNet",
        _net("SPADEDiffusionModelUNet", 3, 1, 1, 2, attention_levels=(False, False), **_DIFFUSION),
        (12, 8, 16),
        _steps_and_labels,
    ),
)
"""Theirs."""
