"""Reports: what the loaders of all ranks delivered, read and waited for."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path

from voxload.errors import StorageError
from voxload.grid import ProcessGrid
from voxload.loader.dataloader import DataLoader
from voxload.loader.prometheus import Labelled, write_textfile
from voxload.telling import gathered
from voxload.training.result import RankReport


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
    return tuple(gathered(own, RankReport))


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
    everyone = gathered(own, list[Labelled])
    if grid.rank == 0:
        try:
            write_textfile(path, [row for rows in everyone for row in rows])
        except StorageError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
