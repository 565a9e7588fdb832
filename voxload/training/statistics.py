"""Statistics that make inputs and targets comparable: over all ranks, from training samples only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from voxload.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.loader.dataloader import DataLoader
from voxload.transforms import Compose, Log1p, Standardize, Transform

MOST_SAMPLES = 64
"""Samples of a group that the statistics are taken from: their mean settles long before a data set ends."""


@dataclass(frozen=True, slots=True)
class TargetScale:
    """Maps each target's range in training to [-1, 1], where the network's last layer works."""

    middle: torch.Tensor
    """Centre of each target's range."""
    half: torch.Tensor
    """Half of each target's range; 1 for a target that does not vary."""

    @classmethod
    def of(cls, targets: torch.Tensor) -> TargetScale:
        """Take the ranges from ``(N, T)`` training targets."""
        low, high = targets.amin(0), targets.amax(0)
        half = (high - low) / 2
        return cls((high + low) / 2, torch.where(half > 0, half, torch.ones_like(half)))

    def scaled(self, targets: torch.Tensor) -> torch.Tensor:
        """Return targets as the network sees them."""
        return (targets - self.middle) / self.half

    def original(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the network's outputs in the targets' own units."""
        return outputs * self.half + self.middle


def input_transform(data: VolumeDataset, *, batch_size: int, log1p: bool) -> Transform:
    """Return the transform that gives each channel mean 0 and deviation 1 over the training samples.

    Every rank reads its blocks of the first samples of its group; sums are added over all ranks in float64.

    Raises
    ------
    UsageError
        On every rank, when log1p meets values of -1 or less, or a channel does not vary.
    """
    first: Callable[[torch.Tensor], torch.Tensor] = Log1p() if log1p else torch.Tensor.float
    sums = torch.zeros(0)
    loader = DataLoader(data, batch_size=batch_size)
    seen = 0
    for batch in loader:
        if seen >= MOST_SAMPLES:
            break
        volumes = batch[0]
        seen += len(volumes)
        values = first(volumes).double().transpose(0, 1).flatten(1)
        count = torch.full((len(values),), values.shape[1], dtype=torch.float64)
        part = torch.stack([count, values.sum(1), values.square().sum(1)])
        sums = part if not len(sums) else sums + part
    if dist.is_initialized():
        dist.all_reduce(sums)
    count, total, squares = sums
    mean = total / count
    variance = squares / count - mean.square()
    if not bool(torch.isfinite(sums).all()):
        raise UsageError(
            "log1p", found="voxels of -1 or less, or NaN", remedy="train with --no-log1p, or mend the data"
        )
    if not bool((variance > 0).all()):
        raise UsageError("input channels", found="a channel that does not vary", remedy="leave it out of the data")
    normalise = Standardize(mean.tolist(), variance.sqrt().tolist())
    return Compose(Log1p(), normalise) if log1p else normalise
