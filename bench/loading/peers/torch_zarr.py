"""torch's loader with zarr-python, by its own pipeline and by that of zarrs; each worker keeps its arrays open."""

from __future__ import annotations

from typing import Any

import torch
import zarr
from zarr.core.buffer import cpu

from bench.loading.job import Job
from bench.loading.peers.torch_loading import Buffers, TorchLoading, block_shape

_ZARRS = "zarrs-workers"


class ZarrBlocks(torch.utils.data.Dataset[torch.Tensor]):
    """Blocks of samples."""

    def __init__(self, job: Job) -> None:
        self._paths, self._block = job.paths, job.case.block
        self._buffers = Buffers(job.case, block_shape(job.case))
        self._open: dict[int, zarr.Array[Any]] = {}
        # One core for each worker: more threads would take turns.
        config: dict[str, object] = {"threading.max_workers": 1}
        if job.contender == _ZARRS:
            config |= {
                "codec_pipeline.path": "zarrs.ZarrsCodecPipeline",
                "codec_pipeline.strict": True,
                "codec_pipeline.chunk_concurrent_maximum": 1,
            }
        zarr.config.set(config)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self._open:
            self._open[index] = zarr.open_array(self._paths[index], mode="r")
        out = self._buffers.take()
        self._open[index].get_basic_selection(self._block, out=cpu.NDBuffer.from_numpy_array(out))
        return torch.from_numpy(out)


def build(job: Job) -> TorchLoading:
    """See Peer."""
    return TorchLoading(ZarrBlocks(job), job, workers=job.workers)
