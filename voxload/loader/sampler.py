"""GroupSampler: the order of samples for sample groups, not for ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any, cast

from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler

from voxload.grid import ProcessGrid


class GroupSampler(DistributedSampler[int]):
    """torch's DistributedSampler over sample groups: all ranks of a group draw the same samples.

    Without `set_epoch` each new iteration is the next epoch, so a loop that never calls it still sees new
    orders, as it would with torch's own shuffling in one process.

    Parameters
    ----------
    data
        What is sampled; only its length matters.
    grid
        The ranks.
    shuffle, seed, drop_last
        As torch's DistributedSampler.
    """

    def __init__(
        self, data: Sized, grid: ProcessGrid, *, shuffle: bool, seed: int = 0, drop_last: bool = False
    ) -> None:
        dataset = cast("Dataset[Any]", data)
        super().__init__(
            dataset, num_replicas=grid.groups, rank=grid.group, shuffle=shuffle, seed=seed, drop_last=drop_last
        )
        self._is_epoch_used = False

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration."""
        super().set_epoch(epoch)
        self._is_epoch_used = False

    def __iter__(self) -> Iterator[int]:
        """Return this group's indices for the chosen epoch, or for the one after the last."""
        if self._is_epoch_used:
            super().set_epoch(self.epoch + 1)
        self._is_epoch_used = True
        return super().__iter__()
