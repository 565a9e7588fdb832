"""Batches: what is loaded, in which order, and what it becomes."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

Pair = namedtuple("Pair", "number name")  # noqa: PYI024 - torch collates those of collections too


def _second_of(samples: list[Any]) -> Any:
    return {"y": torch.stack([sample[1] for sample in samples]), "count": len(samples)}


class Runs:
    """Batches of growing size, as anything that can be iterated gives them."""

    def __iter__(self) -> Iterator[Any]:
        yield [0]
        yield (1, 2)
        yield range(3, 6)
        yield torch.tensor([7, 6])

    def __len__(self) -> int:
        return 4


LOADED: dict[str, Callable[[], dict[str, Any]]] = {
    "one by one": lambda: {"batch_size": None},
    "one by one, by a function": lambda: {"batch_size": None, "collate_fn": lambda sample: sample[1] * 2},
    "batches of one": dict,
    "batches": lambda: {"batch_size": 4},
    "whole batches": lambda: {"batch_size": 4, "drop_last": True},
    "one batch": lambda: {"batch_size": 40},
    "no whole batch": lambda: {"batch_size": 40, "drop_last": True},
    "shuffled": lambda: {"batch_size": 3, "shuffle": True},
    "shuffled by a generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(9)},
    "a list": lambda: {"batch_size": 2, "sampler": [5, 5, 1]},
    "from behind": lambda: {"batch_size": 2, "sampler": [-1, -11, 0]},
    "numbers of other types": lambda: {"batch_size": 2, "sampler": [np.int64(3), 2, np.int32(1)]},
    "an empty list": lambda: {"batch_size": 2, "sampler": []},
    "an iterator": lambda: {"batch_size": 2, "sampler": iter([1, 2, 3])},
    "with repetition": lambda: {"sampler": RandomSampler(range(11), replacement=True, num_samples=15)},
    "of a subset": lambda: {"sampler": SubsetRandomSampler([4, 5, 6]), "batch_size": 2},
    "by weight": lambda: {"sampler": WeightedRandomSampler([1.0] * 11, 6), "batch_size": 4},
    "lists of lists": lambda: {"batch_sampler": [[0, 1], [5], [2, 3, 4]]},
    "torch's batch sampler": lambda: {"batch_sampler": BatchSampler(range(8), 3, drop_last=False)},
    "anything that gives batches": lambda: {"batch_sampler": Runs()},
    "a function": lambda: {"batch_size": 4, "collate_fn": _second_of},
    "the samples themselves": lambda: {"batch_size": 4, "collate_fn": list},
    "with workers": lambda: {"batch_size": 3, "num_workers": 2, "shuffle": True, "prefetch_factor": 1},
    "with workers that stay": lambda: {"num_workers": 1, "persistent_workers": True, "batch_size": 5},
    "with workers, one by one": lambda: {"batch_size": None, "num_workers": 1, "sampler": [3, 1, 2]},
    "with workers, anything": lambda: {"batch_sampler": Runs(), "num_workers": 1},
    "pinned, without a device": lambda: {"batch_size": 4, "pin_memory": True},
    "pinned for a device": lambda: {"batch_size": 4, "pin_memory": True, "pin_memory_device": "cuda"},
}


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("arguments", LOADED.values(), ids=list(LOADED))
def test_batches_are_torchs(both: Any, arguments: Callable[[], Any], same: Callable[..., None]) -> None:
    """Two epochs give the same batches in the same order, of the same types."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, **arguments())
        return [list(loader), list(loader)]

    same(check, both)


FAILING: dict[str, Callable[[], dict[str, Any]]] = {
    "no such sample": lambda: {"sampler": [0, 11, 1]},
    "far below 0": lambda: {"sampler": [0, -12, 1]},
    "in a batch": lambda: {"batch_sampler": [[0, 1], [2, 99], [3]]},
    "one by one": lambda: {"batch_size": None, "sampler": [0, 50, 1]},
    "a function": lambda: {"batch_size": 4, "collate_fn": lambda samples: samples[9]},
    "a function that ends": lambda: {"batch_size": 4, "collate_fn": lambda samples: next(iter(samples[4:]))},
    "a sampler": lambda: {"sampler": (1 // (2 - place) for place in range(4))},
    "no iterable": lambda: {"sampler": 5},
    "batches that are none": lambda: {"batch_sampler": [[0], 1]},
}


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("arguments", FAILING.values(), ids=list(FAILING))
def test_errors_come_in_their_place(both: Any, arguments: Callable[[], Any], same: Callable[..., None]) -> None:
    """Each batch in turn is there or raises, and what follows an error is unharmed."""
    same(_each(0, arguments), both)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("arguments", FAILING.values(), ids=list(FAILING))
def test_threads_raise_as_a_single_process(data: Any, arguments: Callable[[], Any], same: Callable[..., None]) -> None:
    """No worker process stands between an error and the loop: type and text are those of the sample's own error."""
    same(_each(2, arguments), data, torchs=_each(0, arguments))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("name", ["in a batch", "a function"])
def test_processes_raise_as_in_torch(plain: Any, name: str, same: Callable[..., None]) -> None:
    """An error of a worker process has its type, and a text that says where it was."""
    same(_each(1, FAILING[name]), plain)


def _each(workers: int, arguments: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    """Return a check of what comes in place of each batch."""

    def check(kind: Any, data: Any) -> Any:
        found: list[Any] = []
        batches = iter(kind(data, num_workers=workers, **arguments()))
        while len(found) < 8:
            try:
                found.append(next(batches))
            except StopIteration as end:
                return [*found, end.value]
            except Exception as error:  # noqa: BLE001 - whatever it is is compared
                found.append((type(error).__name__, _without_places(str(error))))
        return found

    return check


def _without_places(text: str) -> str:
    """Return a message that may hold another process' traceback without the lines of its code."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


@dataclass
class Custom:
    """A type that torch knows nothing of."""

    number: int


class Kinds(Dataset[Any]):
    """Samples of one kind, made by a function of their index."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        if index >= 5:
            raise IndexError(index)
        return self.make(index)


KINDS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda index: index,
    "floats": float,
    "names": str,
    "bytes": lambda index: bytes([index]),
    "arrays": lambda index: np.full((2, 3), index, np.float16),
    "array scalars": np.float32,
    "arrays of names": lambda index: np.array([str(index)]),
    "tensors": lambda index: torch.full((2,), index),
    "dictionaries": lambda index: {"a": index, "b": {"c": torch.ones(index % 2 + 1)[:1]}},
    "mappings": lambda index: UserDict(a=index),
    "named tuples": lambda index: Pair(index, str(index)),
    "tuples": lambda index: (index, (str(index), [index])),
    "a type of one's own": Custom,
    "nothing": lambda index: None,  # noqa: ARG005 - the index is not used
    "unequal tensors": torch.zeros,
    "unequal lists": lambda index: [0] * index,
}


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("make", KINDS.values(), ids=list(KINDS))
def test_samples_of_any_kind_are_collated(
    make: Callable[[int], Any], batch_size: int | None, same: Callable[..., None]
) -> None:
    """Containers, numbers and arrays become what torch makes of them, and errors are torch's."""
    same(lambda kind, data: list(kind(data, batch_size)), Kinds(make))


def test_many_samples_at_once_are_asked_for(same: Callable[..., None]) -> None:
    """A data set that has `__getitems__` is given whole batches of indices; single samples go the other way."""

    class Many(Kinds):
        def __getitems__(self, indices: list[int]) -> list[tuple[int, int]]:
            return [(index, len(indices)) for index in indices]

    def check(kind: Any, data: Any) -> Any:
        return [list(kind(data, 2)), list(kind(data, 2, num_workers=1)), list(kind(data, None))]

    same(check, Many(lambda index: index))


def test_lists_and_mappings_are_data_sets(same: Callable[..., None]) -> None:
    """Anything with a length and items can be loaded."""
    for data in ([3, 1, 2], {0: "a", 1: "b"}, "abc", range(4), np.arange(6.0), torch.arange(5), []):
        same(lambda kind, given: list(kind(given, 2)), data)
    same(lambda kind, given: list(kind(given, 2, shuffle=True)), [])


def test_an_empty_data_set_is_loaded(both: Any, same: Callable[..., None]) -> None:
    """A loader without samples ends at once, with workers too."""

    def check(kind: Any, data: Any) -> Any:
        return [list(kind(data, sampler=[], num_workers=workers)) for workers in (0, 1)]

    same(check, both)
