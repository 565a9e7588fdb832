"""torch's loader with h5py: each worker keeps its files open and reads into an array that it uses again."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import torch

from bench.loading.contender import SINGLE, WHOLE
from bench.loading.job import Job
from bench.loading.peers.torch_loading import Buffers, TorchLoading, block_shape
from bench.loading.samples import DATASET


class Hdf5Blocks(torch.utils.data.Dataset[torch.Tensor]):
    """Blocks of samples, or whole samples of which a block is cut."""

    def __init__(self, job: Job) -> None:
        self._case, self._paths = job.case, job.paths
        self._is_whole = job.contender == WHOLE
        self._buffers = Buffers(job.case, job.case.shape if self._is_whole else block_shape(job.case))
        self._open: dict[int, h5py.Dataset] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self._open:
            # Room for one chunk: a block needs each chunk once. Without any, chunks would be decoded row by row.
            file = h5py.File(self._paths[index], "r", rdcc_nbytes=2 * self._case.chunk**3)
            self._open[index] = file[DATASET]
        out = self._buffers.take()
        dataset = self._open[index]
        if self._is_whole:
            dataset.read_direct(out)
            return torch.from_numpy(out[self._case.block])
        dataset.read_direct(out, self._case.block)
        return torch.from_numpy(out)


class CopiedBlock:
    """Reads one block of a file into a new tensor; for caches, which keep what they are given."""

    def __init__(self, job: Job) -> None:
        self._case = job.case

    def __call__(self, path: str) -> torch.Tensor:
        """Return the block of a file."""
        out: np.ndarray[Any, np.dtype[np.int16]] = np.empty(block_shape(self._case), np.int16)
        with h5py.File(path, "r", rdcc_nbytes=2 * self._case.chunk**3) as file:
            file[DATASET].read_direct(out, self._case.block)
        return torch.from_numpy(out)


def build(job: Job) -> TorchLoading:
    """See Peer."""
    return TorchLoading(Hdf5Blocks(job), job, workers=0 if job.contender == SINGLE else job.workers)
