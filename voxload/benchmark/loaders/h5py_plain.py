"""h5py alone: one thread reads each batch when it is asked for, whatever number of threads there may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voxload.benchmark.loaders.blocks import BlockReader
from voxload.benchmark.loaders.delivery import delivered, is_on_device
from voxload.benchmark.loaders.kind import Kind
from voxload.benchmark.loaders.protocol import Task
from voxload.benchmark.loaders.running import Running
from voxload.benchmark.loaders.torch_h5py import open_hdf5
from voxload.benchmark.loaders.volumes import HDF5


class PlainLoading:
    """See BenchLoader; blocks are read straight into the batch, which is used again for the next one."""

    def __init__(self, task: Task) -> None:
        self._supply, self._running = task.workload.supply, Running()
        self._blocks = BlockReader(task, open_hdf5)
        cut, self._size = self._blocks.cut, task.workload.share.batch_size
        whole = torch.from_numpy(np.zeros((self._size, *cut.volume_shape), cut.dtype))
        self._batch = whole.pin_memory() if is_on_device(self._supply) else whole

    def epoch(self, number: int, indices: tuple[int, ...]) -> Iterator[Tensor]:  # noqa: ARG002 - the contract's
        """See BenchLoader."""
        self._running.end()
        return self._running.begin(delivered(self._batches(indices), self._supply))

    def counts(self) -> Mapping[str, Any]:
        """See BenchLoader."""
        return {}

    def close(self) -> None:
        """See BenchLoader."""
        self._running.end()
        self._blocks.close()

    def _batches(self, indices: tuple[int, ...]) -> Iterator[Tensor]:
        for first in range(0, len(indices), self._size):
            own = indices[first : first + self._size]
            for place, index in enumerate(own):
                self._blocks.read_into(index, self._batch[place].numpy())
            yield self._batch[: len(own)]


KIND = Kind("h5py", "h5py, one thread", ("h5py",), (HDF5,), PlainLoading)
