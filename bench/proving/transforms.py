"""Transforms: what a chain of them costs, as a multiple of moving its bytes once."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch

from bench.proving.clock import seconds
from bench.proving.told import Setting, Teller
from voxload.transforms import Cast, ChannelsLast, Compose, Log1p, Standardize

_CHANNELS = 4
_ROUNDS = 7
_CALLS = {"cuda": 20, "cpu": 1}
"""Calls in a row, by device: a GPU gets the next one while it works on the last, as in training."""
_STEPS = (Log1p(), Standardize([1.0] * _CHANNELS, [0.5] * _CHANNELS))
CHAINS = {
    "log1p, standardize": Compose(*_STEPS),
    "log1p, standardize, bfloat16": Compose(*_STEPS, Cast(torch.bfloat16)),
    "log1p, standardize, channels last": Compose(*_STEPS, ChannelsLast()),
}
STORED = {"int16": torch.int16, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Fusion:
    """One chain over volumes of one stored type."""

    chain: str
    stored: str
    fused: float
    """Seconds."""
    eager: float
    """Seconds, step by step in torch."""
    floor: float
    """Seconds to read the stored bytes and write the results, at the bandwidth of copying."""
    alone: float
    """Seconds of one fused call by itself, from the host's asking to its hearing of the end."""

    @property
    def multiple(self) -> float:
        """Fused over floor."""
        return self.fused / self.floor


def prove_transforms(setting: Setting, tell: Teller) -> None:
    """Measure all chains over all stored types."""
    found = measure(torch.device(setting.device), 16 if setting.is_small else 256)
    worst = max(one.multiple for one in found)
    tell.figures("transforms: the slowest chain over the floor of memory bandwidth", worst)
    eager = max(one.eager / one.floor for one in found)
    alone = max(one.alone / one.floor for one in found)
    tell.figures("transforms: the slowest chain in torch, step by step, over the floor", eager)
    tell.figures("transforms: one call by itself, its launch and end included, over the floor", alone)
    tell.detail("transforms", [asdict(one) | {"multiple": one.multiple} for one in found])


def measure(device: torch.device, size: int) -> list[Fusion]:
    """Return the figures of all chains; of several rounds in turn, the best."""
    found = []
    for stored, dtype in STORED.items():
        volumes = torch.randint(0, 900, (1, _CHANNELS, size, size, size), device=device).to(dtype)
        for name, chain in CHAINS.items():
            found.append(_one(device, volumes, name, chain, stored))
    return found


def _one(device: torch.device, volumes: torch.Tensor, name: str, chain: Compose, stored: str) -> Fusion:
    result = chain(volumes)  # compiles, and makes tables
    moved = volumes.nbytes + result.nbytes
    source = torch.ones(moved // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source).copy_(source)
    calls = _CALLS[device.type]
    rounds = [
        (
            seconds(device, lambda: target.copy_(source), calls),
            seconds(device, lambda: chain(volumes), calls),
            seconds(device, lambda: _eager(volumes, result), calls),
            seconds(device, lambda: chain(volumes)),
        )
        for _ in range(_ROUNDS)
    ]
    floor, fused, eager, alone = (min(column) for column in zip(*rounds, strict=True))
    return Fusion(name, stored, fused, eager, floor, alone)


def _eager(volumes: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return what every chain here means, as torch does it step by step."""
    mean = torch.ones((1, _CHANNELS, 1, 1, 1), device=volumes.device)
    values = ((volumes.to(torch.float32).log1p() - mean) / (0.5 * mean)).to(like.dtype)
    is_last = like.is_contiguous(memory_format=torch.channels_last_3d)
    return values.contiguous(memory_format=torch.channels_last_3d) if is_last else values
