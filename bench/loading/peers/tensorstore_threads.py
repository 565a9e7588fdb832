"""tensorstore: its own threads decode some blocks ahead, each asked for as one batch of reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import tensorstore
import torch

from bench.loading.job import Job

_AHEAD = 2
"""Batches ahead for each thread, as torch has for each worker."""
_CACHE = 16 << 20
"""Bytes of its cache: shard indices stay in it; of chunks, which are needed once an epoch, it can hold few."""


class TensorstoreLoading:
    """See Loading."""

    def __init__(self, job: Job) -> None:
        limits = {
            "file_io_concurrency": {"limit": 2 * job.workers},
            "data_copy_concurrency": {"limit": job.workers},
            "cache_pool": {"total_bytes_limit": _CACHE},
        }
        self._context = tensorstore.Context(limits)
        self._case, self._paths, self._ahead = job.case, job.paths, _AHEAD * job.workers
        self._open: dict[int, Any] = {}
        self._generator = torch.Generator().manual_seed(job.seed)

    def epoch(self) -> Iterator[torch.Tensor]:
        """See Loading."""
        order = torch.randperm(len(self._paths), generator=self._generator).tolist()
        batches = iter([order[at : at + self._case.batch] for at in range(0, len(order), self._case.batch)])
        under_way = deque(self._ask(batch) for batch in islice(batches, self._ahead))
        while under_way:
            futures = under_way.popleft()
            blocks = [future.result() for future in futures]
            under_way.extend(self._ask(batch) for batch in islice(batches, 1))
            yield torch.from_numpy(blocks[0][None] if len(blocks) == 1 else np.stack(blocks))

    def close(self) -> None:
        """See Loading."""
        self._open.clear()

    def _ask(self, indices: list[int]) -> list[Any]:
        with tensorstore.Batch() as batch:
            return [self._array(index)[self._case.block].read(batch=batch) for index in indices]

    def _array(self, index: int) -> Any:
        if index not in self._open:
            spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{self._paths[index]}/"}}
            self._open[index] = tensorstore.open(
                spec,
                context=self._context,
                open=True,
                read=True,
                recheck_cached_metadata=False,
                recheck_cached_data=False,
            ).result()
        return self._open[index]


build = TensorstoreLoading
