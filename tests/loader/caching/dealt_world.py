"""What ranks load whose samples are dealt: volumes that say which they are, the loaders' lives, and torch's batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

import voxload
from tests.support.settled import settle
from voxload.cache.memory.layout import Layout
from voxload.errors import VoxloadError
from voxload.loader.sampler import GroupSampler

RANKS = 4
EXTENT = 6
STEP = 1000
"""Voxels of a sample are so many times its number, and their place."""
SAMPLES = 26
SEED = 7
Epochs = list[list[list[int]]]
"""The samples of each batch of each epoch."""


def cube(number: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the voxels of a sample."""
    return (STEP * number + np.arange(EXTENT**3)).reshape((EXTENT,) * 3).astype(np.int32)


def write(folder: Path) -> None:
    """Write all samples."""
    for number in range(SAMPLES):
        np.save(folder / f"s{number:03}.npy", cube(number))
    settle(folder)  # else no disk keeps blocks of them


@dataclass(frozen=True)
class Life:
    """One loader's life."""

    name: str
    memory: int = 6
    """Blocks that each rank has room for; ranks of odd number have more, where `is_uneven`."""
    is_uneven: bool = False
    batch: int = 2
    policy: str = "clairvoyant"
    drop_last: bool = False
    lengths: tuple[int | None, ...] = (None,) * 4
    """Steps after which each epoch is left; None where it runs to its end."""
    chosen: tuple[int | None, ...] = (None,) * 9
    """Number that each epoch is set to; None leaves it to follow."""
    words: dict[str, Any] = field(default_factory=dict)
    """Further ones of the loader."""
    clairvoyant: bool = True
    epochs: int | None = None
    """As the cache is told."""
    disk: int = 0
    """Blocks for which each rank has room on disk."""
    folder: str = ""
    """Where that is."""
    is_torchs: bool = False
    """Whether torch's own sampler deals the order to groups."""

    def cache(self, data: voxload.VolumeDataset, locality: str | None) -> voxload.Cache:
        """Return the cache."""
        block = int(np.prod(data.grid.block((EXTENT,) * 3).shape)) * 4 + 256
        room = self.memory + (5 * (data.grid.rank % 2) if self.is_uneven else 0)
        memory = RANKS * (Layout.within(2**16, None).data_at + room * block)
        words: dict[str, Any] = {"policy": self.policy, "clairvoyant": self.clairvoyant, "epochs": self.epochs}
        if self.disk:
            words |= {"disk": self.folder, "disk_size": 8 + RANKS * self.disk * block}
        return voxload.Cache(memory=memory, locality=locality, **words)

    def loader(self, data: voxload.VolumeDataset, locality: str | None = "batch") -> voxload.DataLoader:
        """Return the loader."""
        generator = torch.Generator().manual_seed(SEED)
        words: dict[str, Any] = {"batch_size": self.batch, "shuffle": True, "drop_last": self.drop_last} | self.words
        if self.is_torchs:
            grid = data.grid
            torchs: DistributedSampler[Any] = DistributedSampler(
                data, num_replicas=grid.groups, rank=grid.group, seed=SEED
            )
            words |= {"sampler": torchs, "shuffle": None}
        return voxload.DataLoader(data, generator=generator, cache=self.cache(data, locality), **words)

    def plain(self, data: voxload.VolumeDataset) -> Epochs:
        """Return the batches of this group as torch's loader has them, each epoch to where it is left."""
        sampler = GroupSampler(data, data.grid, shuffle=True, seed=SEED, drop_last=self.drop_last)
        torchs: DataLoader[Any] = DataLoader(range(len(data)), self.batch, sampler=sampler, drop_last=self.drop_last)  # type: ignore[arg-type] # it has a length and items
        found = []
        for length, chosen in zip(self.lengths, self.chosen, strict=False):
            if chosen is not None:
                sampler.set_epoch(chosen)
            found.append([batch.tolist() for batch in torchs][:length])
        return found


LIVES = (
    Life("half"),
    Life("all", memory=14, drop_last=True),
    Life("one by one", batch=1, memory=3),
    Life("uneven rooms", is_uneven=True),
    Life("lru", policy="lru"),
    Life("first touch", policy="first-touch", clairvoyant=False),
    Life("left early", lengths=(None, 2, None, 1, None)),
    Life("chosen", chosen=(5, None, 2, 2)),
    Life("persistent", words={"num_workers": 2, "persistent_workers": True}, lengths=(None, 1, None)),
    Life("torchs", is_torchs=True, chosen=(0, 1, 2, 3)),
    Life("disk", memory=2, disk=4),
    Life("single", words={"batch_size": None}, memory=4, batch=1),
)


def numbers_of(volumes: torch.Tensor, data: voxload.VolumeDataset) -> list[int]:
    """Return the samples of a batch, all of whose voxels are compared."""
    box = data.grid.block((EXTENT,) * 3)
    found = []
    for volume in volumes.reshape(-1, *volumes.shape[-3:]).numpy():
        number = int(volume.flat[0]) // STEP
        assert np.array_equal(volume, cube(number)[box.slices]), number
        found.append(number)
    return found


def epochs(loader: voxload.DataLoader, data: voxload.VolumeDataset, life: Life) -> Epochs:
    """Return the samples of each batch; ranks take steps together."""
    one, found = torch.zeros(1), []
    for length, chosen in zip(life.lengths, life.chosen, strict=False):
        if chosen is not None:
            loader.set_epoch(chosen)
        steps: list[list[int]] = []
        for batch in loader:
            steps.append(numbers_of(batch[0] if isinstance(batch, list) else batch, data))
            dist.all_reduce(one)
            if len(steps) == length:
                break
        found.append(steps)
    return found


def resumed(life: Life, data: voxload.VolumeDataset, *, anew: bool) -> Epochs:
    """Return an epoch of which two steps were taken and the rest elsewhere, or by the same loader, and the next one."""
    first = life.loader(data)
    found = epochs(first, data, Life("", lengths=(None, 2)))
    state = first.state_dict()
    if anew:
        first.close()
    else:
        epochs(first, data, Life("", lengths=(None,)))
    second = life.loader(data) if anew else first
    second.load_state_dict(state)
    rest = epochs(second, data, Life("", lengths=(None, None)))
    second.close()
    return [found[0], found[1] + rest[0], rest[1]]


def refused(make: Callable[[], Any]) -> str:
    """Return what a call raises."""
    try:
        make()
    except VoxloadError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def refusals(data: voxload.VolumeDataset) -> Iterator[tuple[str, str]]:
    """Yield what cannot be dealt, and what is said of it."""
    cache = Life("").cache(data, "batch")

    def begun(**words: Any) -> None:
        loader = voxload.DataLoader(data, cache=cache, **words)
        try:
            next(iter(loader))
        finally:
            loader.close()

    draw = torch.Generator().manual_seed(1)
    yield "own sampler", refused(lambda: begun(batch_size=2, sampler=RandomSampler(data, generator=draw)))
    yield "own batches", refused(lambda: begun(batch_sampler=Pairs([[0, 1], [2, 3]])))
    loader = Life("").loader(data)
    held: Iterator[Any] = iter(loader)
    next(held)
    if dist.get_rank() != 1:  # one rank holds an iterator: all are told
        held = iter(())
    yield "beside another", refused(lambda: iter(loader))
    held = iter(())
    loader.close()
    loader = Life("").loader(data)
    loader.set_epoch(dist.get_rank())
    yield "other epochs", refused(lambda: iter(loader))
    loader.close()
    loader = Life("").loader(data)
    began = iter(loader)
    sampler: Any = loader.sampler
    sampler.seed += 1
    yield "changed sampler", refused(lambda: next(began))
    loader.close()


class Pairs(list[list[int]]):
    """Batches that somebody lists."""

    batch_size = 2
