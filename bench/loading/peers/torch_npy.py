"""torch's loader with numpy's memory maps, of which the collation copies."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from bench.loading.job import Job
from bench.loading.peers.torch_loading import TorchLoading


class NpyBlocks(torch.utils.data.Dataset[torch.Tensor]):
    """Blocks of samples, as views into maps."""

    def __init__(self, job: Job) -> None:
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        self._paths, self._block = job.paths, job.case.block
        self._open: dict[int, np.ndarray[Any, np.dtype[np.int16]]] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self._open:
            self._open[index] = np.load(self._paths[index], mmap_mode="r")
        return torch.from_numpy(self._open[index][self._block])


def build(job: Job) -> TorchLoading:
    """See Peer."""
    return TorchLoading(NpyBlocks(job), job, workers=job.workers)
