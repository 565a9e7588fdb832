"""Combination: one network, grid, wrapper and way of running that training is compared for, and the data of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.splitting.functional import FunctionalUNet
from voxload.models import CosmoFlow, UNet3D

FUNCTIONAL = "unet3d-functional"
NETWORKS = ("cosmoflow-mlperf", "cosmoflow-lbann", "unet3d-kits19", "unet3d-lbann", FUNCTIONAL)
WRAPPERS = ("ddp", "fsdp2", "hsdp")
MODES = ("plain", "checkpointing", "accumulation", "compiled")
GRIDS: tuple[tuple[int, tuple[int, int, int]], ...] = (
    (2, (2, 1, 1)),
    (4, (2, 1, 1)),
    (4, (2, 2, 1)),
    (3, (1, 3, 1)),
    (8, (2, 2, 2)),
)
"""Ranks and blocks along (d, h, w); 4 ranks with 2 blocks are two sample groups, three blocks are uneven."""
SAMPLES = 4
"""Samples of a step where gradients are accumulated: two for each of two groups. Elsewhere half as many do."""
_EXTENTS = {"cosmoflow-mlperf": 32, "cosmoflow-lbann": 32, "unet3d-kits19": 16, "unet3d-lbann": 16, FUNCTIONAL: 16}
_WIDTHS = (4, 6, 8)
_CLASSES = 3


@dataclass(frozen=True, slots=True)
class Combination:
    """What is trained and how."""

    network: str
    """One of `NETWORKS`."""
    world: int
    """Ranks."""
    spatial: tuple[int, int, int]
    """Blocks along (d, h, w)."""
    wrapper: str
    """One of `WRAPPERS`."""
    mode: str
    """One of `MODES`."""
    backend: str = "aot_eager"
    """Backend of torch.compile, where it is used."""

    def __str__(self) -> str:
        split = "x".join(map(str, self.spatial))
        return f"{self.network} {self.world} ranks {split} {self.wrapper} {self.mode}"


def everything() -> Iterator[Combination]:
    """Yield every combination."""
    for network, (world, spatial), wrapper, mode in itertools.product(NETWORKS, GRIDS, WRAPPERS, MODES):
        if wrapper != "hsdp" or world % 2 == 0:
            yield Combination(network, world, spatial, wrapper, mode)


def covering() -> Iterator[Combination]:
    """Yield few combinations: U-Nets on 2 and 4 ranks with the other choices in turn, and CosmoFlow in four ways.

    CosmoFlow takes ten times as long; a test of its own trains it on every kind of grid, up to 8 ranks.
    """
    for number, network in enumerate(NETWORKS[2:]):
        for place, (world, spatial) in enumerate(GRIDS):
            if world in {2, 4}:
                wrapper, mode = WRAPPERS[(number + place) % 3], MODES[(number + 2 * place) % 3]
                yield Combination(network, world, spatial, wrapper, mode)
    yield Combination("unet3d-lbann", 2, (2, 1, 1), "fsdp2", "compiled")
    yield Combination(FUNCTIONAL, 2, (2, 1, 1), "fsdp2", "compiled")
    yield Combination("cosmoflow-mlperf", 2, (2, 1, 1), "ddp", "compiled")
    yield Combination("cosmoflow-lbann", 2, (2, 1, 1), "hsdp", "checkpointing")
    yield Combination("cosmoflow-lbann", 4, (2, 1, 1), "ddp", "plain")


def extent_of(network: str) -> int:
    """Return the extent of the cubes that a network is trained on."""
    return _EXTENTS[network]


def build(network: str) -> nn.Module:
    """Return a network in float64."""
    torch.manual_seed(7)
    if network == FUNCTIONAL:
        return FunctionalUNet(2, _CLASSES, _WIDTHS).double()
    family, variant = network.split("-")
    if family == "cosmoflow":
        return CosmoFlow(32, 2, 3, variant=variant, batch_norm=variant == "lbann", dropout=0.0).double()  # type: ignore[arg-type] # one of the variants
    return UNet3D(2, _CLASSES, variant=variant, widths=_WIDTHS).double()  # type: ignore[arg-type] # as above


def data_of(network: str, mode: str) -> tuple[Tensor, Tensor]:
    """Return the volumes and the targets of a step: numbers per sample, or a class per voxel."""
    samples = SAMPLES if mode == "accumulation" else SAMPLES // 2
    generator = torch.Generator().manual_seed(11)
    size: Any = (extent_of(network),) * 3
    x = torch.rand(samples, 2, *size, generator=generator, dtype=torch.float64)
    if network.startswith("cosmoflow"):
        return x, torch.rand(samples, 3, generator=generator, dtype=torch.float64) * 2 - 1
    return x, torch.randint(0, _CLASSES, (samples, *size), generator=generator)


def parts_of(samples: int, mode: str) -> list[list[int]]:
    """Return the samples of each backward pass of a step, of one group's or of all: one after the other, or at once."""
    if mode != "accumulation":
        return [list(range(samples))]
    half = SAMPLES // 2
    return [[0], [1]] if samples == half else [[0, half], [1, half + 1]]


def criterion(network: str) -> nn.Module:
    """Return the loss of a network in one process."""
    return nn.MSELoss() if network.startswith("cosmoflow") else nn.CrossEntropyLoss()
