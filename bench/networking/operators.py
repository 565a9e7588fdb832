"""Fourier neural operators of neuraloperator."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from bench.networking.network import Network

_MODES = (4, 4, 4)
_SHAPE = (12, 8, 16)


def _network(name: str, kind: str, *words: Any, shape: tuple[int, ...] = _SHAPE, **settings: Any) -> Network:
    def build(_: tuple[int, ...]) -> nn.Module:
        made: nn.Module = getattr(importlib.import_module("neuralop.models"), kind)(*words, **settings)
        return made

    large = (128, 128, 128) if len(shape) == len(_SHAPE) else (2048, 1024)
    return Network("neuralop", name, build, shape, large=large)


_UNO: dict[str, Any] = {"uno_out_channels": [8] * 3, "uno_n_modes": [list(_MODES)] * 3}
_UNO |= {"uno_scalings": [[1.0] * 3, [0.5] * 3, [2.0] * 3], "channel_mlp_skip": "linear"}
OPERATORS = (
    _network("FNO", "FNO", _MODES, 1, 2, 8, n_layers=2),
    _network("FNO, group norm, padding", "FNO", _MODES, 1, 2, 8, n_layers=2, norm="group_norm", domain_padding=0.25),
    _network("FNO, images", "FNO", (4, 4), 1, 2, 8, n_layers=2, shape=(16, 24)),
    _network("UNO", "UNO", 1, 2, 8, lifting_channels=8, projection_channels=8, n_layers=3, **_UNO),
)
"""Theirs."""
