"""voxload itself, through its public names and with its own defaults."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from math import prod

import torch
import zarr  # noqa: F401 - not when the first array is opened: nobody else's imports are timed

from bench.loading.contender import OWN_CACHE
from bench.loading.job import Job

# Names are looked up when they are first used: this is where they are imported, as all other contenders are.
from voxload import Cache, DataLoader, ProcessGrid, VolumeDataset

_ROOM = 1.2
"""Room for blocks, over their bytes."""


class OwnLoading:
    """See Loading."""

    def __init__(self, job: Job) -> None:
        # One rank of a group that is not there: nothing of a comparison of ranks is timed, as nobody else does one.
        warnings.filterwarnings("ignore", message="torch.distributed is not initialised")
        case = job.case
        ranks = prod(case.spatial)
        self._data = VolumeDataset(list(job.paths), grid=ProcessGrid(case.spatial, ranks, ranks - 1), axes="CDHW")
        cache = None
        if job.contender == OWN_CACHE:
            cache = Cache(memory=int(case.count * case.block_bytes * _ROOM) + (1 << 20))
        self._loader = DataLoader(
            self._data,
            case.batch,
            shuffle=True,
            generator=torch.Generator().manual_seed(job.seed),
            cache=cache,
        )

    def epoch(self) -> Iterator[torch.Tensor]:
        """See Loading."""
        for (batch,) in self._loader:
            yield batch
            del batch

    def close(self) -> None:
        """See Loading."""
        self._loader.close()
        self._data.close()


build = OwnLoading
