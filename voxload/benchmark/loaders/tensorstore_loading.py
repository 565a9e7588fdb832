"""TensorstoreLoading: batches of blocks by tensorstore's own threads."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

import numpy as np
import tensorstore
import torch
from torch import Tensor

from voxload.benchmark.loaders.blocks import MOST_OPEN, Cut
from voxload.benchmark.loaders.delivery import Loading, delivered, is_on_device
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.benchmark.loaders.volumes import ZARR2
from voxload.readers.protocol import Volume as Array

_CACHE = 16 << 20
"""Bytes of its cache: shard indices stay in it; of chunks, which are needed once an epoch, it can hold few."""


def open_array(volume: Volume, context: Any) -> Any:
    """Open a Zarr array under tensorstore's limits; what it keeps is not compared with the files again."""
    spec = {
        "driver": "zarr" if volume.format == ZARR2 else "zarr3",
        "kvstore": {"driver": "file", "path": f"{volume.path}/"},
    }
    return tensorstore.open(
        spec, context=context, open=True, read=True, recheck_cached_metadata=False, recheck_cached_data=False
    ).result()


class TensorstoreLoading(Loading):
    """See BenchLoader; as many batches are under way for each thread as torch would have for each worker."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        threads = self._supply.threads
        self._context = tensorstore.Context(
            {
                "file_io_concurrency": {"limit": 2 * threads},
                "data_copy_concurrency": {"limit": threads},
                "cache_pool": {"total_bytes_limit": _CACHE},
            }
        )
        self._volumes, self._cut = task.volumes, Cut.of(task)
        self._ahead = self._supply.prefetch * threads
        self._open: OrderedDict[int, Any] = OrderedDict()

    def close(self) -> None:
        """See BenchLoader; its threads are the library's, and last as long as the process."""
        super().close()
        self._open.clear()

    def _batches(self, indices: tuple[int, ...]) -> Generator[Tensor]:
        return delivered(self._read(indices), self._supply)

    def _read(self, indices: tuple[int, ...]) -> Iterator[Tensor]:
        batches = iter([indices[at : at + self._size] for at in range(0, len(indices), self._size)])
        under_way = deque(self._ask(batch) for batch in islice(batches, self._ahead))
        while under_way:
            blocks = [[future.result() for future in each] for each in under_way.popleft()]
            under_way.extend(self._ask(batch) for batch in islice(batches, 1))
            batch = torch.from_numpy(self._collated(blocks))
            yield batch.pin_memory() if is_on_device(self._supply) else batch

    def _ask(self, indices: tuple[int, ...]) -> list[list[Any]]:
        """Return, for each sample, what will be the parts of its block."""
        with tensorstore.Batch() as batch:
            return [
                [self._array(index)[part.source].read(batch=batch) for part in self._cut.parts] for index in indices
            ]

    def _collated(self, blocks: list[list[Array]]) -> Array:
        """Return the batch of blocks, each given as its parts; a single one that is as it should be is not copied."""
        cut = self._cut
        if len(blocks) == 1 and cut.is_plain:
            whole = cut.as_volume(blocks[0][0])
            return np.ascontiguousarray(whole)[np.newaxis]
        batch = (np.empty if cut.is_plain else np.zeros)((len(blocks), *cut.volume_shape), cut.dtype)
        for out, found in zip(batch, blocks, strict=True):
            target = cut.as_stored(out)
            for part, voxels in zip(cut.parts, found, strict=True):
                for source, place in part.pastes:
                    target[place] = voxels[source]
        return batch

    def _array(self, index: int) -> Any:
        if index not in self._open:
            while len(self._open) >= MOST_OPEN:
                self._open.popitem(last=False)
            self._open[index] = open_array(self._volumes[index], self._context)
        self._open.move_to_end(index)
        return self._open[index]
