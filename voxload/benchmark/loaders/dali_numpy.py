"""DALI's numpy reader, which reads regions of .npy files by threads."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from voxload.benchmark.loaders.blocks import Cut
from voxload.benchmark.loaders.delivery import Loading, is_on_device
from voxload.benchmark.loaders.protocol import Task
from voxload.readers.axes import VOLUME_AXES


class DaliLoading(Loading):
    """See BenchLoader.

    The reader takes its files in an order that is settled when its pipeline is built, so each epoch has one of its own.
    There is a reader for each part of the block; on a GPU its batches are copied there by the pipeline.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._dali: Any = importlib.import_module("nvidia.dali")  # its types differ from what it takes
        self._paths = [volume.path for volume in task.volumes]
        self._cut = Cut.of(task)

    def _batches(self, indices: tuple[int, ...]) -> Generator[Tensor]:
        pipeline = self._pipeline([self._paths[index] for index in indices])
        for first in range(0, len(indices), self._size):
            # Behind the last file the reader begins anew: what fills up the last batch so is cut off.
            count = min(self._size, len(indices) - first)
            yield self._collated([self._as_tensor(part)[:count] for part in pipeline.run()])

    def _pipeline(self, paths: list[str]) -> Any:
        is_gpu = is_on_device(self._supply)

        def reading() -> Any:
            readers = [
                self._dali.fn.readers.numpy(
                    device="cpu",
                    files=paths,
                    roi_start=[along.start for along in part.source],
                    roi_shape=list(part.shape),
                    cache_header_information=True,
                )
                for part in self._cut.parts
            ]
            return tuple(reader.gpu() if is_gpu else reader for reader in readers)

        define = self._dali.pipeline_def(
            batch_size=self._size,
            num_threads=self._supply.threads,
            device_id=torch.cuda.current_device() if is_gpu else None,
            prefetch_queue_depth=self._supply.prefetch,
        )
        pipeline = define(reading)()
        pipeline.build()
        return pipeline

    def _as_tensor(self, batch: Any) -> Tensor:
        """Return the pipeline's own memory: its iterator for torch would copy it."""
        return (
            torch.utils.dlpack.from_dlpack(batch.as_tensor())
            if is_on_device(self._supply)
            else torch.from_numpy(batch.as_array())
        )

    def _collated(self, found: list[Tensor]) -> Tensor:
        """Return a batch from those of its parts, each with its axes as stored."""
        cut = self._cut
        if cut.is_plain:
            stored = found[0]
        else:
            stored = found[0].new_zeros((len(found[0]), *cut.shape))
            for part, voxels in zip(cut.parts, found, strict=True):
                for source, place in part.pastes:
                    stored[(slice(None), *place)] = voxels[(slice(None), *source)]
        named, axes = (stored, cut.axes) if "C" in cut.axes else (stored.unsqueeze(1), "C" + cut.axes)
        return named.permute(0, *(1 + axes.index(axis) for axis in VOLUME_AXES)).contiguous()
