"""Figures of a run over all ranks: its loss so far, the held-out samples' marks, what loaders delivered."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from voxload.errors import StorageError
from voxload.grid import ProcessGrid
from voxload.launch.collectives import all_gathered
from voxload.loader.dataloader import DataLoader
from voxload.loader.prometheus import Labelled, write_textfile
from voxload.training.result import Epoch, RankReport


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


def mean_marks(noted: Mapping[int, Tensor], samples: int) -> Tensor:
    """Return each sample's mean marks over all ranks that noted some, ``(samples, marks)`` in float64, on every rank.

    A sample that several groups judged, because their shares are padded, so counts once.

    Parameters
    ----------
    noted
        This rank's marks by the index of the sample, each ``(marks,)``; one sample or more.
    samples
        Number of samples; each is noted by some rank.
    """
    width = len(next(iter(noted.values())))
    sums = torch.zeros((samples, width + 1), dtype=torch.float64)
    for index, row in noted.items():
        sums[index, :width] = row
        sums[index, width] = 1
    if dist.is_initialized():
        dist.all_reduce(sums)
    return sums[:, :width] / sums[:, width:]


def rank_reports(loader: DataLoader, grid: ProcessGrid) -> tuple[RankReport, ...]:
    """Return every rank's figures of a loader, on every rank."""
    stats = loader.stats()
    own = RankReport(
        rank=grid.rank,
        group=grid.group,
        coords=grid.coords,
        bytes_needed=stats.bytes_needed,
        bytes_read=stats.bytes_read,
        read_amplification=stats.read_amplification,
        decode_amplification=stats.decode_amplification,
        seconds_stalled=stats.seconds_stalled,
        accelerator_utilisation=stats.accelerator_utilisation,
        steps=tuple((step.asked, step.stall, step.compute) for step in stats.steps),
        sources=stats.sources,
    )
    return tuple(all_gathered(own, RankReport))


def publish(loaders: Mapping[str, DataLoader], path: Path, *, grid: ProcessGrid) -> None:
    """Write all ranks' figures for Prometheus, as rank 0; where that fails the run goes on, with a warning.

    Parameters
    ----------
    loaders
        This rank's, by name.
    path
        The file that node_exporter reads.
    grid
        The ranks; each calls this at the same point.
    """
    own = [
        ({"rank": str(grid.rank), "loader": name}, dataclasses.replace(loader.stats(), steps=()))
        for name, loader in loaders.items()
    ]
    everyone = all_gathered(own, list[Labelled])
    if grid.rank == 0:
        try:
            write_textfile(path, [row for rows in everyone for row in rows])
        except StorageError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
