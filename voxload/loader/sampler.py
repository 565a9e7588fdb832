"""GroupSampler: the order of samples for sample groups, not for ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any, cast

from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from voxload.grid import ProcessGrid
from voxload.prefetch.order.reordering import Shuffles, shuffle_of

_DIVIDED = ("num_replicas", "rank", "num_samples", "total_size")
"""What torch's sampler makes of the ranks."""


class GroupSampler(DistributedSampler[int]):
    """torch's DistributedSampler over sample groups: all ranks of a group draw the same samples.

    Without `set_epoch` each new iteration is the next epoch, so a loop that never calls it still sees new
    orders, as it would with torch's own shuffling in one process.

    Parameters
    ----------
    data
        What is sampled; only its length matters, and its ``grid`` where none is given.
    grid
        The ranks. None takes those of `data`, looked up when the sampler is first iterated or asked for its length:
        a job may know its ranks only then.
    shuffle, seed, drop_last
        As torch's DistributedSampler.
    """

    def __init__(
        self, data: Sized, grid: ProcessGrid | None = None, *, shuffle: bool, seed: int = 0, drop_last: bool = False
    ) -> None:
        self.dataset = cast("Dataset[Any]", data)
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        self.shuffles: Shuffles = ()
        """For each epoch, the number that seeds its shuffle together with `seed`; its own behind the last of them."""
        self._is_epoch_used = False
        if grid is not None:
            self._divide(grid)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration."""
        super().set_epoch(epoch)
        self._is_epoch_used = False

    def __iter__(self) -> Iterator[int]:
        """Return this group's indices for the chosen epoch, or for the one after the last."""
        if self._is_epoch_used:
            super().set_epoch(self.epoch + 1)
        self._is_epoch_used = True
        own = self.epoch
        self.epoch = shuffle_of(self.shuffles, own)  # which torch's sampler adds to the seed
        try:
            return super().__iter__()
        finally:
            self.epoch = own

    def __getattr__(self, name: str) -> Any:
        """Look the ranks up when what depends on them is first asked for; torch's sampler has it from the start."""
        if name not in _DIVIDED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._divide(cast("Any", self.dataset).grid)
        return getattr(self, name)

    def _divide(self, grid: ProcessGrid) -> None:
        epoch = self.epoch
        super().__init__(
            self.dataset,
            num_replicas=grid.groups,
            rank=grid.group,
            shuffle=self.shuffle,
            seed=self.seed,
            drop_last=self.drop_last,
        )
        self.epoch = epoch


def divide(loader: DataLoader[Any]) -> None:
    """Have the DistributedSampler of a loader, if it has one, divide as many samples as there are now.

    torch's own divides once, when it is made; its other samplers look how many there are each time.
    """
    batches: Any = loader.batch_sampler
    for one in {id(each): each for each in (loader.sampler, getattr(batches, "sampler", None))}.values():
        if isinstance(one, DistributedSampler) and one.dataset is loader.dataset:
            anew: DistributedSampler[Any] = DistributedSampler(
                one.dataset, num_replicas=one.num_replicas, rank=one.rank, drop_last=one.drop_last
            )
            one.num_samples, one.total_size = anew.num_samples, anew.total_size
