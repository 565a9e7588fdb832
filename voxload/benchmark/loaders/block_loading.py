"""Block loading: loaders that read blocks in Python, by torch's worker processes or by the consumer itself."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from voxload.benchmark.loaders.blocks import BlockReader, Slices, Stored
from voxload.benchmark.loaders.delivery import GivenOrder, Loading, delivered, is_on_device
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.benchmark.loaders.volumes import RAW
from voxload.readers.protocol import Volume as Array


@dataclass(frozen=True, slots=True)
class MappedArray:
    """See Stored; reading is copying."""

    array: Array
    """The voxels, in the stored order of the axes."""

    def view(self, source: Slices) -> Array:
        """See Stored."""
        return self.array[source]

    def read(self, source: Slices, out: Array, target: Slices) -> None:
        """See Stored."""
        out[target] = self.array[source]

    def close(self) -> None:
        """See Stored; a map goes with the last view of it."""


def map_file(volume: Volume) -> Stored:
    """Map a file, copy-on-write: nothing is written, and torch takes no array that could not be."""
    if volume.format == RAW:
        return MappedArray(np.memmap(volume.path, volume.dtype, mode="c", shape=volume.shape))
    return MappedArray(np.load(volume.path, mmap_mode="c"))


class Blocks(Protocol):
    """Reads this rank's blocks, as BlockReader does; used by one thread, and picklable."""

    def __len__(self) -> int: ...

    def block(self, index: int) -> Array:
        """Return a sample's block (C, d, h, w), good until as many as a batch has were asked for."""
        ...

    def close(self) -> None:
        """Close what it opened."""
        ...


class TorchBlocks(Dataset[Tensor]):
    """Blocks as torch's loader takes them: they may be buffers that are used again, for the collation copies them."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self._blocks.block(index))

    def close(self) -> None:
        """Close what this process opened."""
        self._blocks.close()


class TorchLoading(Loading):
    """See BenchLoader.

    Worker processes stay from epoch to epoch and keep what they have opened: the best that torch's loader can do. They
    collate in shared memory.
    """

    def __init__(self, task: Task, blocks: Blocks) -> None:
        super().__init__(task)
        self._asked, self._data = GivenOrder(), TorchBlocks(blocks)
        workers = self._supply.threads
        self._loader: DataLoader[Tensor] | None = DataLoader(
            self._data,
            self._size,
            sampler=self._asked,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=self._supply.prefetch if workers else None,
            pin_memory=is_on_device(self._supply),
        )

    def close(self) -> None:
        """See BenchLoader; torch's worker processes end with its loader."""
        super().close()
        self._loader = None
        self._data.close()

    def _batches(self, indices: tuple[int, ...]) -> Generator[Tensor]:
        self._asked.indices = indices
        return delivered(self._loader or (), self._supply)


def torch_npy(task: Task) -> TorchLoading:
    """Return what reads .npy and raw files by torch's loader, as memory maps."""
    return TorchLoading(task, BlockReader(task, map_file))


class PlainLoading(Loading):
    """See BenchLoader; blocks are read straight into the batch, which is used again for the next one."""

    def __init__(self, task: Task, blocks: BlockReader) -> None:
        super().__init__(task)
        self._blocks, cut = blocks, blocks.cut
        whole = torch.from_numpy(np.zeros((self._size, *cut.volume_shape), cut.dtype))
        self._batch = whole.pin_memory() if is_on_device(self._supply) else whole

    def close(self) -> None:
        """See BenchLoader."""
        super().close()
        self._blocks.close()

    def _batches(self, indices: tuple[int, ...]) -> Generator[Tensor]:
        return delivered(self._read(indices), self._supply)

    def _read(self, indices: tuple[int, ...]) -> Iterator[Tensor]:
        for first in range(0, len(indices), self._size):
            own = indices[first : first + self._size]
            for place, index in enumerate(own):
                self._blocks.read_into(index, self._batch[place].numpy())
            yield self._batch[: len(own)]
