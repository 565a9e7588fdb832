"""MONAI's CacheDataset, filled by threads when it is made, under its ThreadDataLoader."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from monai.data import CacheDataset, ThreadDataLoader
from monai.transforms import Transform

from bench.loading.job import Job
from bench.loading.peers.torch_h5py import CopiedBlock


class KeptBlock(CopiedBlock, Transform):
    """The same, as one of MONAI's transforms: CacheDataset runs anything else anew in every epoch."""


class MonaiLoading:
    """See Loading; the cached blocks are not copied, and a thread collates ahead, as MONAI's guides advise."""

    def __init__(self, job: Job) -> None:
        data = CacheDataset(list(job.paths), KeptBlock(job), num_workers=job.workers, progress=False, copy_cache=False)
        if data[0].data_ptr() != data[0].data_ptr():
            raise AssertionError("MONAI's cache reads anew: what is timed would be no cache")
        self._loader = ThreadDataLoader(
            data,
            batch_size=job.case.batch,
            shuffle=True,
            num_workers=0,
            generator=torch.Generator().manual_seed(job.seed),
        )

    def epoch(self) -> Iterator[torch.Tensor]:
        """See Loading."""
        yield from self._loader

    def close(self) -> None:
        """See Loading."""
        del self._loader


build = MonaiLoading
