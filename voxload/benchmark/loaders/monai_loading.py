"""MonaiLoading: blocks that MONAI's CacheDataset keeps, under its ThreadDataLoader."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import monai.transforms
import numpy as np
import torch
from monai.data import CacheDataset, ThreadDataLoader
from torch import Tensor
from torch.utils.data import default_collate

from voxload.benchmark.loaders.blocks import BlockReader
from voxload.benchmark.loaders.delivery import GivenOrder, Loading, delivered, is_on_device
from voxload.benchmark.loaders.hdf5_array import open_hdf5
from voxload.benchmark.loaders.protocol import Task
from voxload.errors import InternalError


class ReadBlock(monai.transforms.Transform):
    """Makes the block of a sample's index, in a new tensor: caches keep what they are given.

    It says that it is a transform of MONAI's: what any other callable makes is not cached.
    """

    def __init__(self, task: Task) -> None:
        self._task = task

    def __call__(self, data: int) -> Tensor:
        """Return the block; safe to call from many threads, for each call opens the file for itself."""
        blocks = BlockReader(self._task, open_hdf5)
        try:
            out = np.zeros(blocks.cut.volume_shape, blocks.cut.dtype)
            blocks.read_into(data, out)
        finally:
            blocks.close()
        return torch.from_numpy(out)


class MonaiLoading(Loading):
    """See BenchLoader.

    As many blocks are cached, by threads when it is made, as fit this rank's part of the node's memory. Where all do, a
    thread collates ahead; else worker processes read the others anew in each epoch.

    Raises InternalError when MONAI makes a cached block anew: what is measured would be no cache.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        supply, count = self._supply, len(task.volumes)
        cut = BlockReader(task, open_hdf5).cut
        kept = min(count, supply.memory // task.node_ranks // cut.nbytes)
        workers = 0 if kept == count else supply.threads
        data: Any = CacheDataset(
            list(range(count)),
            ReadBlock(task),
            cache_num=kept,
            num_workers=supply.threads,
            progress=False,
            copy_cache=False,
        )
        # Both are held: what is made anew could else lie where the other one lay.
        one, other = (data[0], data[0]) if kept else (None, None)
        if one is not other:
            raise InternalError("loader monai", found="a cached block that is made anew", expected="a cache")
        self._asked = GivenOrder()
        self._loader: Any = ThreadDataLoader(
            data,
            batch_size=self._size,
            sampler=self._asked,
            collate_fn=default_collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=supply.prefetch if workers else None,
            pin_memory=is_on_device(supply),
        )

    def close(self) -> None:
        """See BenchLoader; worker processes end with the loader."""
        super().close()
        self._loader = ()

    def _batches(self, indices: tuple[int, ...]) -> Generator[Tensor]:
        self._asked.indices = indices
        return delivered(self._loader, self._supply)
