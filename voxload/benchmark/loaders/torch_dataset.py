"""torch's own loader over voxload's data set: what the reader gives by itself, and all that VolumeDataset can read."""

from __future__ import annotations

from voxload.benchmark.loaders.block_loading import TorchLoading
from voxload.benchmark.loaders.protocol import Task
from voxload.data.dataset import VolumeDataset
from voxload.readers.protocol import Volume as Array


class DatasetBlocks:
    """The blocks of a task's data set, each in an array of its own; see `block_loading.Blocks`."""

    def __init__(self, data: VolumeDataset) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def block(self, index: int) -> Array:
        """Return a sample's block (C, d, h, w); raises what VolumeDataset raises."""
        (block,) = self._data[index]
        found: Array = block.numpy()
        return found

    def close(self) -> None:
        """Close nothing: the task's data set is closed by whoever made it."""


def torch_voxload(task: Task) -> TorchLoading:
    """Return what reads a task's data set by torch's loader."""
    return TorchLoading(task, DatasetBlocks(task.data))
