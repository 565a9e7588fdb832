"""Networks of videos of torchvision; time is their first axis."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.networking.network import LARGE, Network

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_SHAPE = (12, 32, 40)


def videos() -> Any:
    """Import ``torchvision.models.video``.

    A torchvision that was built for GPUs has no operators beside a torch that was not, and registers what it knows of
    two of them all the same. They are of detection; no network here calls them.
    """
    try:
        return importlib.import_module("torchvision.models.video")
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", _BOXES)
        return importlib.import_module("torchvision.models.video")


def _network(
    name: str, build: Callable[[Any], nn.Module], shape: tuple[int, ...] = _SHAPE, large: tuple[int, ...] = LARGE
) -> Network:
    return Network("torchvision", name, lambda _: build(videos()), shape, channels=3, large=large)


def _swin(place: Any) -> nn.Module:
    sizes = {"patch_size": [2, 4, 4], "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 2], "window_size": [2, 2, 2]}
    made: nn.Module = place.swin_transformer.SwinTransformer3d(**sizes, num_classes=3)
    return made


TORCHVISION = (
    _network("r3d_18", lambda place: place.r3d_18(num_classes=3)),
    _network("mc3_18", lambda place: place.mc3_18(num_classes=3)),
    _network("r2plus1d_18", lambda place: place.r2plus1d_18(num_classes=3)),
    _network("s3d", lambda place: place.s3d(num_classes=3), (16, 224, 256), (32, 256, 256)),
    _network("swin3d", _swin, (16, 48, 64)),
)
"""Theirs."""
