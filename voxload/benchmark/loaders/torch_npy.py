"""torch's loader with numpy's memory maps, of which the collation copies."""

from __future__ import annotations

import numpy as np

from voxload.benchmark.loaders.blocks import BlockReader, Stored
from voxload.benchmark.loaders.kind import Kind
from voxload.benchmark.loaders.mapped import MappedArray
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.benchmark.loaders.torch_loading import TorchLoading
from voxload.benchmark.loaders.volumes import NPY, RAW


def map_file(volume: Volume) -> Stored:
    """Map a file, copy-on-write: nothing is written, and torch takes no array that could not be."""
    if volume.format == RAW:
        return MappedArray(np.memmap(volume.path, volume.dtype, mode="c", shape=volume.shape))
    return MappedArray(np.load(volume.path, mmap_mode="c"))


def _make(task: Task) -> TorchLoading:
    return TorchLoading(task, BlockReader(task, map_file))


KIND = Kind("torch-npy", "torch DataLoader, numpy memory maps", (), (NPY, RAW), _make)
