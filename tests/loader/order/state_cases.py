"""Loaders of numbers in the order of every kind of sampler, and what they deliver."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import voxload

SAMPLES = 23


class Numbers(Dataset[int]):
    """Each sample is its index; one may be broken."""

    def __init__(self, samples: int = SAMPLES, broken: int = -1) -> None:
        self.samples = samples
        self.broken = broken

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        if index == self.broken:
            raise KeyError(index)
        return index


class Backwards(Sampler[int]):
    """A sampler that nobody knows."""

    def __init__(self, last: int = SAMPLES - 1) -> None:
        self.last = last

    def __len__(self) -> int:
        return self.last

    def __iter__(self) -> Iterator[int]:
        yield from range(self.last, 0, -1)


class Stateful(Sampler[int]):
    """A sampler of which no two epochs are equal, and which says where it is."""

    def __init__(self) -> None:
        self.epoch_seed = 5
        self.done = 0
        self.drawn = 0

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.epoch_seed)).tolist()
        for index in order[self.done :]:
            self.done += 1
            self.drawn += 1
            yield index
        self.done = 0
        self.epoch_seed += 1

    def state_dict(self) -> dict[str, int]:
        """Return where it is."""
        return {"done": self.done, "epoch_seed": self.epoch_seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on there."""
        self.done, self.epoch_seed = state["done"], state["epoch_seed"]


def generator(seed: int = 3) -> torch.Generator:
    """Return a new generator."""
    return torch.Generator().manual_seed(seed)


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": lambda: {"batch_size": 3},
    "dropped": lambda: {"batch_size": 4, "drop_last": True},
    "shuffled": lambda: {"shuffle": True, "batch_size": 3},
    "shuffled with a generator": lambda: {"shuffle": True, "batch_size": 3, "generator": generator()},
    "generator of its own": lambda: {"sampler": RandomSampler(Numbers(), generator=generator()), "batch_size": 3},
    "single": lambda: {"batch_size": None, "shuffle": True, "generator": generator()},
    "replacement": lambda: {
        "sampler": RandomSampler(Numbers(), replacement=True, num_samples=70, generator=generator()),
        "batch_size": 5,
    },
    "more than all": lambda: {"sampler": RandomSampler(Numbers(), num_samples=60), "batch_size": 5},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(3, 19)), "batch_size": 3},
    "weighted": lambda: {
        "sampler": WeightedRandomSampler([1.0, 2.0, 3.0] * 7, 40, generator=generator()),
        "batch_size": 3,
    },
    "list": lambda: {"sampler": [3, 1, 4, 1, 5, -9, 2, 6], "batch_size": 3},
    "distributed": lambda: {"sampler": DistributedSampler(Numbers(), 3, 1, seed=4), "batch_size": 2},
    "batch sampler": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(Numbers(), generator=generator()), 4, drop_last=True)
    },
    "lists of lists": lambda: {"batch_sampler": [[1, 2], [3], [4, 5, 6], [7]]},
    "unknown": lambda: {"sampler": Backwards(), "batch_size": 3},
    "stateful": lambda: {"sampler": Stateful(), "batch_size": 3},
    "stateful batches": lambda: {"batch_sampler": BatchSampler(Stateful(), 4, drop_last=True)},
}
SEEDLESS = ("shuffled", "more than all", "subset")
"""Cases of which torch's global generator seeds each epoch, when its first batch is drawn."""


def take(batches: Any, count: int | None = None) -> list[Any]:
    """Return so many of the next batches, or all that are left, as lists."""
    return [batch.tolist() if isinstance(batch, torch.Tensor) else batch for batch in itertools.islice(batches, count)]


def flat(batches: list[Any]) -> list[int]:
    """Return the samples of some batches."""
    return [index for batch in batches for index in batch]


def loader_of(case: str, workers: int = 0, **more: Any) -> voxload.DataLoader:
    """Return voxload's loader of a case."""
    return voxload.DataLoader(Numbers(), num_workers=workers, **CASES[case](), **more)
