"""Video autoencoders and diffusion networks of diffusers, of few channels; time is the first axis of a video."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bench.networking.network import Network, nothing
from bench.networking.video import videos

_VIDEO, _LONG = (9, 32, 48), (129, 128, 128)
"""Videos of which the first frame stands by itself, and four others make a step."""
_IMAGE, _LARGE_IMAGE = (16, 24), (2048, 1024)


class Decoder(nn.Module):
    """The decoder of an autoencoder, as a network of its own."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, x: Tensor) -> Any:
        """Return the video that belongs to latent numbers."""
        return self.whole.decode(x)


class Encoder(Decoder):
    """The encoder, likewise."""

    def forward(self, x: Tensor) -> Any:
        """Return mean and spread of the latent numbers."""
        return self.whole.encode(x).latent_dist.parameters


def _net(kind: str, **settings: Any) -> Callable[[tuple[int, ...]], nn.Module]:
    def build(_: tuple[int, ...]) -> nn.Module:
        videos()  # which makes torchvision importable
        made: nn.Module = getattr(importlib.import_module("diffusers"), kind)(**settings)
        return made

    return build


def _both(name: str, kind: str, latent: tuple[int, ...], latents: int, **settings: Any) -> tuple[Network, Network]:
    """Return encoder and decoder of a video autoencoder; `latent` are the extents of latent numbers."""
    build = _net(kind, **settings)
    large = tuple(extent * 8 for extent in latent)
    return (
        Network("diffusers", f"{name}, encoder", lambda shape: Encoder(build(shape)), _VIDEO, 3, large=_LONG),
        Network("diffusers", f"{name}, decoder", lambda shape: Decoder(build(shape)), latent, latents, large=large),
    )


def _text(shape: tuple[int, ...]) -> tuple[Any, ...]:  # noqa: ARG001 - as others have it
    """Return a time step, and the words that condition the result."""
    return torch.tensor([3, 3]), torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))


_WAN: dict[str, Any] = {"base_dim": 4, "z_dim": 2, "dim_mult": [1, 2], "num_res_blocks": 1, "attn_scales": []}
_WAN |= {"temperal_downsample": [True], "latents_mean": [0.0, 0.0], "latents_std": [1.0, 1.0]}
_COG: dict[str, Any] = {"down_block_types": ("CogVideoXDownBlock3D",) * 2, "block_out_channels": (8, 8)}
_COG |= {"up_block_types": ("CogVideoXUpBlock3D",) * 2, "latent_channels": 2, "layers_per_block": 1}
_COG |= {"norm_num_groups": 4, "temporal_compression_ratio": 2}
_HUN: dict[str, Any] = {"latent_channels": 2, "down_block_types": ("HunyuanVideoDownBlock3D",) * 4}
_HUN |= {"up_block_types": ("HunyuanVideoUpBlock3D",) * 4, "block_out_channels": (8,) * 4, "layers_per_block": 1}
_HUN |= {"norm_num_groups": 4}
_LTX: dict[str, Any] = {"latent_channels": 4, "block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8)}
_LTX |= {"down_block_types": ("LTXVideoDownBlock3D",) * 2, "layers_per_block": (1,) * 3}
_LTX |= {"decoder_layers_per_block": (1,) * 3, "spatio_temporal_scaling": (True, False)}
_LTX |= {"decoder_spatio_temporal_scaling": (True, False), "decoder_inject_noise": (False,) * 3}
_LTX |= {"downsample_type": ("conv",) * 2, "upsample_residual": (False,) * 2, "upsample_factor": (1, 1)}
_COS: dict[str, Any] = {"latent_channels": 4, "encoder_block_out_channels": (8,) * 4, "num_layers": 1}
_COS |= {"decode_block_out_channels": (8,) * 4, "attention_resolutions": (), "resolution": 64}
_TEXT: dict[str, Any] = {"block_out_channels": (8, 8), "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D")}
_TEXT |= {"up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"), "cross_attention_dim": 8, "layers_per_block": 1}
_TEXT |= {"norm_num_groups": 4, "attention_head_dim": 4, "in_channels": 1, "out_channels": 1}
_UNET: dict[str, Any] = {"block_out_channels": (8, 8), "down_block_types": ("DownBlock2D", "AttnDownBlock2D")}
_UNET |= {"up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "layers_per_block": 1, "norm_num_groups": 4}
_UNET |= {"attention_head_dim": 4, "in_channels": 1, "out_channels": 1}
_KL: dict[str, Any] = {"in_channels": 1, "out_channels": 1, "block_out_channels": (8, 8), "latent_channels": 2}
_KL |= {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
_KL |= {"norm_num_groups": 4}
DIFFUSING = (
    *_both("AutoencoderKLWan", "AutoencoderKLWan", (5, 8, 12), 2, **_WAN),
    *_both("AutoencoderKLCogVideoX", "AutoencoderKLCogVideoX", (4, 8, 12), 2, **_COG),
    *_both("AutoencoderKLHunyuanVideo", "AutoencoderKLHunyuanVideo", (3, 4, 6), 2, **_HUN),
    *_both("AutoencoderKLLTXVideo", "AutoencoderKLLTXVideo", (3, 4, 6), 4, **_LTX),
    *_both("AutoencoderKLCosmos", "AutoencoderKLCosmos", (2, 4, 6), 4, **_COS),
    Network("diffusers", "UNet3DConditionModel", _net("UNet3DConditionModel", **_TEXT), (8, 16, 24), args=_text),
    Network("diffusers", "UNet2DModel", _net("UNet2DModel", **_UNET), _IMAGE, args=lambda _: (3,), large=_LARGE_IMAGE),
    Network("diffusers", "AutoencoderKL", _net("AutoencoderKL", **_KL), _IMAGE, args=nothing, large=_LARGE_IMAGE),
)
"""Theirs."""
