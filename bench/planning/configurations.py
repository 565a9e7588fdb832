"""Configurations: each network in each strategy that it can be split by, on one to eight ranks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import nn

from bench.planning.nets import SAMPLES
from voxload.errors import UsageError
from voxload.plan.forecast.forecast import Forecast
from voxload.plan.platform.platform import Platform
from voxload.plan.validation.run import ValidationCase, predict

Spatial = tuple[int, int, int]
_SPLITS: tuple[tuple[str, Spatial, int, int, str], ...] = (
    ("alone", (1, 1, 1), 1, 1, ""),
    ("alone", (1, 1, 1), 1, 2, ""),
    ("data", (1, 1, 1), 2, 1, ""),
    ("data", (1, 1, 1), 2, 2, ""),
    ("spatial", (2, 1, 1), 1, 1, ""),
    ("spatial", (1, 2, 1), 1, 2, ""),
    ("filter", (2, 1, 1), 1, 1, "filter"),
    ("channel", (2, 1, 1), 1, 1, "channel"),
    ("filter and channel", (2, 1, 1), 1, 1, "alternate"),
    ("data", (1, 1, 1), 4, 1, ""),
    ("data + spatial", (2, 1, 1), 2, 1, ""),
    ("spatial", (2, 2, 1), 1, 1, ""),
    ("data + filter", (2, 1, 1), 2, 1, "filter"),
    ("data", (1, 1, 1), 8, 1, ""),
    ("data + spatial", (2, 2, 1), 2, 1, ""),
    ("spatial", (2, 2, 2), 1, 1, ""),
)
"""Strategy, blocks, groups, samples of a group, and what layers use the axes for."""
_PIPELINES: tuple[tuple[str, Spatial, int, int, int], ...] = (
    ("layer", (1, 1, 1), 1, 4, 2),
    ("layer", (1, 1, 1), 1, 4, 4),
    ("data + layer", (1, 1, 1), 2, 2, 2),
    ("spatial + layer", (2, 1, 1), 1, 2, 2),
)
"""Strategy, blocks, pipelines, samples of a pipeline, which go through it one by one, and stages."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One network in one strategy."""

    network: str
    strategy: str
    case: ValidationCase


def configurations(
    platform: Platform, networks: Sequence[str], most: int
) -> Iterator[tuple[Configuration, Forecast | UsageError]]:
    """Yield all configurations, each with what is said of it, or with the words by which the engine refuses it."""
    for network in networks:
        sample = SAMPLES[network]
        for strategy, spatial, groups, samples, use in _SPLITS:
            if groups * prod(spatial) > most:
                continue
            model = f"bench.planning.nets:{network}"
            layers = _layers(network, prod(spatial), use)
            case = ValidationCase(model, sample, spatial, groups, samples, layers=layers)
            yield Configuration(network, strategy, case), _forecast(case, platform)
        for strategy, spatial, groups, samples, stages in _PIPELINES:
            case = ValidationCase(
                f"bench.planning.nets:{network}",
                sample,
                spatial,
                groups,
                samples,
                stages=stages,
                microbatches=samples,
            )
            if case.ranks <= most:
                yield Configuration(network, strategy, case), _forecast(case, platform)


def _layers(network: str, ranks: int, use: str) -> dict[str, str]:
    """Return what the layers of a network use the only axis for whose filters, or channels, ranks divide."""
    if not use:
        return {}
    with torch.device("meta"):
        model: nn.Module = getattr(importlib.import_module("bench.planning.nets"), network)()
    found: dict[str, str] = {}
    turn = "filter"
    for path, module in model.named_modules():
        if not isinstance(module, nn.Conv3d) or module.groups > 1:
            continue
        wanted = turn if use == "alternate" else use
        count = module.out_channels if wanted == "filter" else module.in_channels
        if count % ranks == 0 and count >= 4 * ranks:
            found[path] = f"{wanted},space,space"
            turn = "channel" if turn == "filter" else "filter"
    return found


def _forecast(case: ValidationCase, platform: Platform) -> Forecast | UsageError:
    try:
        return predict(case, platform)
    except UsageError as refusal:
        return refusal
