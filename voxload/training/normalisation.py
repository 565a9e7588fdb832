"""Normalisation: what makes inputs and targets comparable, over all ranks, from training samples only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist

from voxload.data.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.loader.dataloader import DataLoader
from voxload.transforms import Compose, Log1p, Standardize, Transform

MOST_SAMPLES = 64
"""Samples that the statistics are taken from: their mean settles long before a data set ends."""


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
        """Return targets as the network sees them, where they are."""
        return (targets - self.middle.to(targets.device)) / self.half.to(targets.device)

    def original(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the network's outputs in the targets' own units, where they are."""
        return outputs * self.half.to(outputs.device) + self.middle.to(outputs.device)


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and deviation of each channel of the inputs: what a run, and whoever uses its weights, goes by."""

    log1p: bool
    """Whether they are of log(1 + voxel)."""
    mean: tuple[float, ...]
    """By channel."""
    deviation: tuple[float, ...]
    """By channel, above 0."""

    @classmethod
    def of(cls, data: VolumeDataset, *, batch_size: int, log1p: bool) -> Moments:
        """Measure the first samples of `data`, each once, whatever the grid.

        Every rank reads its blocks of its group's share; sums are added over all ranks in float64.

        Raises
        ------
        UsageError
            On every rank, when log1p meets values of -1 or less, or a channel does not vary.
        """
        sums = _sums(data, batch_size, _log1p if log1p else torch.Tensor.float)
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
        return cls(log1p, tuple(mean.tolist()), tuple(variance.sqrt().tolist()))

    @property
    def transform(self) -> Transform:
        """What gives each channel mean 0 and deviation 1."""
        normalise = Standardize(self.mean, self.deviation)
        return Compose(Log1p(), normalise) if self.log1p else normalise


def _log1p(volumes: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of one plus each voxel, NaN where there is none: all ranks are told of it together."""
    return volumes.float().log1p()


def _sums(data: VolumeDataset, batch_size: int, first: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return this rank's count, sum and sum of squares of each channel, ``(3, C)``."""
    sums = torch.zeros((3, data.layout(0)[0].shape[0]), dtype=torch.float64)
    # The sampler deals samples out in turn and repeats the first ones at its end: those are beyond this group's share.
    left = len(range(data.grid.group, min(MOST_SAMPLES, len(data)), data.grid.groups))
    with closing(DataLoader(data, batch_size=batch_size)) as loader:
        for batch in islice(loader, -(-left // batch_size)):
            values = first(batch[0][:left]).double().transpose(0, 1).flatten(1)
            left -= len(batch[0])
            count = torch.full((len(values),), values.shape[1], dtype=torch.float64)
            sums += torch.stack([count, values.sum(1), values.square().sum(1)])
    return sums
