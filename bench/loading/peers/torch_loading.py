"""TorchLoading: torch's own loader over a data set of blocks, set up as well as it can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from bench.loading.cases import Case
from bench.loading.job import Job


class Buffers:
    """Arrays for one batch, used again for the next: the loader's collation copies out of them."""

    def __init__(self, case: Case, shape: tuple[int, ...]) -> None:
        self._arrays: list[np.ndarray[Any, np.dtype[np.int16]]] = []
        self._count, self._shape = case.batch, shape
        self._next = 0

    def take(self) -> np.ndarray[Any, np.dtype[np.int16]]:
        """Return the next array; they are made by whichever process asks."""
        if not self._arrays:
            self._arrays = [np.empty(self._shape, np.int16) for _ in range(self._count)]
        self._next = (self._next + 1) % self._count
        return self._arrays[self._next]


class TorchLoading:
    """See Loading.

    Workers stay, and keep what they have opened: the best that torch can do. Batches are collated in shared memory.
    """

    def __init__(self, data: torch.utils.data.Dataset[torch.Tensor], job: Job, *, workers: int) -> None:
        self._loader = torch.utils.data.DataLoader(
            data,
            job.case.batch,
            shuffle=True,
            num_workers=workers,
            generator=torch.Generator().manual_seed(job.seed),
            persistent_workers=workers > 0,
            prefetch_factor=2 if workers else None,
        )

    def epoch(self) -> Iterator[torch.Tensor]:
        """See Loading."""
        for batch in self._loader:
            yield batch
            del batch

    def close(self) -> None:
        """See Loading."""
        del self._loader


def block_shape(case: Case) -> tuple[int, ...]:
    """Return the extents of a block."""
    return tuple(part.stop - part.start for part in case.block)
