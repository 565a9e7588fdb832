"""DALI's numpy reader, which reads regions of .npy files by threads."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterator
from typing import Any

import torch
from torch import Tensor

from voxload.benchmark.loaders.blocks import Cut
from voxload.benchmark.loaders.delivery import Loading, is_on_device
from voxload.benchmark.loaders.protocol import Task, epoch_indices
from voxload.readers.axes import VOLUME_AXES

_MOST_FILES = 1 << 20
"""Names that a pipeline is given, about: each takes memory, and epochs beyond have a pipeline of their own."""


class DaliLoading(Loading):
    """See BenchLoader.

    The reader takes its files in an order that is settled when its pipeline is built, so it is given those of all
    epochs in one: its threads, its batches ahead and the headers that it keeps serve all of them. Where an epoch is
    left early, or comes in another order, a pipeline is built anew. There is a reader for each part of the block; on a
    GPU its batches are copied there by the pipeline.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._dali: Any = importlib.import_module("nvidia.dali")  # its types differ from what it takes
        self._task = task
        self._paths = [volume.path for volume in task.volumes]
        self._cut = Cut.of(task)
        self._pipeline: Any = None
        self._taken = 0
        """Batches taken from the pipeline."""
        self._begins: dict[int, tuple[int, ...]] = {}
        """Orders of the pipeline's epochs, by the batches before each."""

    def epoch(self, number: int, indices: tuple[int, ...]) -> Iterator[Tensor]:
        """See BenchLoader."""
        self._end()
        if self._begins.get(self._taken) != indices:
            self._begin(number, indices)
        return super().epoch(number, indices)

    def close(self) -> None:
        """See BenchLoader; the pipeline's threads end with it."""
        super().close()
        self._pipeline, self._begins = None, {}

    def _batches(self, indices: tuple[int, ...]) -> Generator[Tensor]:
        for first in range(0, len(indices), self._size):
            found = self._pipeline.run()
            self._taken += 1
            # What fills up the last batch is cut off.
            yield self._collated([self._as_tensor(part)[: len(indices) - first] for part in found])

    def _begin(self, number: int, indices: tuple[int, ...]) -> None:
        """Build a pipeline of an epoch and of those that are foreseen behind it, each filled up to whole batches."""
        files: list[str] = []
        self._begins, self._taken = {}, 0
        for order in self._orders(number, indices):
            if len(files) > _MOST_FILES:
                break
            self._begins[len(files) // self._size] = order
            filling = order[-1:] * (-len(order) % self._size)
            files += [self._paths[index] for index in (*order, *filling)]
        self._pipeline = self._built(files)

    def _orders(self, number: int, indices: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield the order of an epoch, and those that the workload gives the epochs behind it."""
        yield indices
        workload, samples = self._task.workload, len(self._paths)
        for later in range(number + 1, workload.length.epochs):
            yield epoch_indices(workload.share, samples, self._task.grid, later)[: len(indices)]

    def _built(self, files: list[str]) -> Any:
        is_gpu = is_on_device(self._supply)

        def reading() -> Any:
            readers = [
                self._dali.fn.readers.numpy(
                    device="cpu",
                    files=files,
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
