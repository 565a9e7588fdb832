"""DALI's numpy reader, on the CPU: it reads regions of .npy files by threads."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from bench.loading.job import Job
from bench.loading.peers.torch_loading import block_shape

dali: Any = importlib.import_module("nvidia.dali")  # its types differ from what it takes
_AHEAD = 2
"""Batches ahead, DALI's own default."""


class DaliLoading:
    """See Loading."""

    def __init__(self, job: Job) -> None:
        case = job.case
        starts = [part.start for part in case.block]

        def reading() -> object:
            return dali.fn.readers.numpy(
                device="cpu",
                files=list(job.paths),
                roi_start=starts,
                roi_shape=list(block_shape(case)),
                shuffle_after_epoch=True,
                cache_header_information=True,
            )

        define = dali.pipeline_def(
            batch_size=case.batch, num_threads=job.workers, device_id=None, prefetch_queue_depth=_AHEAD, seed=job.seed
        )
        self._pipeline = define(reading)()
        self._pipeline.build()
        self._batches = case.count // case.batch

    def epoch(self) -> Iterator[torch.Tensor]:
        """See Loading."""
        for _ in range(self._batches):
            (batch,) = self._pipeline.run()
            # The pipeline's own memory is handed on, as its iterator for torch would copy it.
            yield torch.from_numpy(np.asarray(batch.as_array()))

    def close(self) -> None:
        """See Loading."""
        del self._pipeline


build = DaliLoading
