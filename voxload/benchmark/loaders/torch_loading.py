"""TorchLoading: torch's own loader over blocks, set up as well as it can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from voxload.benchmark.loaders.asked import AskedOrder
from voxload.benchmark.loaders.blocks import BlockReader
from voxload.benchmark.loaders.delivery import delivered, is_on_device
from voxload.benchmark.loaders.protocol import Task
from voxload.benchmark.loaders.running import Running


class TorchBlocks(Dataset[Tensor]):
    """Blocks as torch's loader takes them: views of buffers that are used again, for the collation copies them."""

    def __init__(self, blocks: BlockReader) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self._blocks.block(index))

    def close(self) -> None:
        """Close what this process opened."""
        self._blocks.close()


class TorchLoading:
    """See BenchLoader.

    Worker processes stay from epoch to epoch and keep what they have opened: the best that torch's loader can do. They
    collate in shared memory.
    """

    def __init__(self, task: Task, blocks: BlockReader) -> None:
        self._supply = task.workload.supply
        self._asked, self._running = AskedOrder(), Running()
        self._data = TorchBlocks(blocks)
        workers = self._supply.threads
        self._loader: DataLoader[Tensor] | None = DataLoader(
            self._data,
            task.workload.share.batch_size,
            sampler=self._asked,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=self._supply.prefetch if workers else None,
            pin_memory=is_on_device(self._supply),
        )

    def epoch(self, number: int, indices: tuple[int, ...]) -> Iterator[Tensor]:  # noqa: ARG002 - the contract's
        """See BenchLoader."""
        self._running.end()
        self._asked.indices = indices
        return self._running.begin(delivered(self._loader or (), self._supply))

    def counts(self) -> Mapping[str, Any]:
        """See BenchLoader."""
        return {}

    def close(self) -> None:
        """See BenchLoader; torch's worker processes end with its loader."""
        self._running.end()
        self._loader = None
        self._data.close()
