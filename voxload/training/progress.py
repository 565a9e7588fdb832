"""Progress: how far a run has come, in figures."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from voxload.training.result import Epoch


@dataclass(frozen=True, slots=True)
class Progress:
    """Epochs behind a run, and the part of the present one that is behind it too; the same on every rank."""

    epochs: tuple[Epoch, ...] = ()
    """Those that are over."""
    steps: int = 0
    """Steps of the epoch at hand."""
    seconds: float = 0.0
    """Time that they took."""
    loss: float = 0.0
    """Sum of the loss over their samples."""
    samples: float = 0.0
    """Samples in that sum."""


class LossMean:
    """The mean loss of an epoch over the samples of all groups; used by one thread.

    Parameters
    ----------
    start
        What went before.
    group_size
        Ranks that share a sample, each of which adds its loss.
    """

    def __init__(self, start: Progress, *, group_size: int) -> None:
        self._sums = torch.tensor([start.loss, start.samples], dtype=torch.float64)
        self._own = torch.zeros(2, dtype=torch.float64)
        self._group_size = group_size

    def add(self, loss: float, samples: int) -> None:
        """Note the mean loss of a batch of this rank's group."""
        self._own += torch.tensor([loss * samples, samples], dtype=torch.float64)

    def sums(self) -> tuple[float, float]:
        """Return loss and samples added up over all groups so far; every rank asks at the same point."""
        if dist.is_initialized():
            dist.all_reduce(self._own)
        self._sums += self._own / self._group_size
        self._own.zero_()
        loss, samples = self._sums.tolist()
        return loss, samples
