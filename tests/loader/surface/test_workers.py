"""Worker processes: their seeds and what they know, the order of what they load, and how they fail."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from tests.support import processes


class Made(Dataset[Any]):
    """Items made by a function, in whichever process loads them."""

    def __init__(self, make: Callable[[int], Any], length: int = 4) -> None:
        self.make = make
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Shard(IterableDataset[int]):
    """Numbers, each worker its own; with a length or without."""

    def __init__(self, count: int, length: int | None = None, step: int = 1) -> None:
        self.count = count
        self.length = length
        self.step = step

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first = 0 if info is None else info.id
        return iter(range(first, self.count, self.step))

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("no length")
        return self.length


class Odd(Exception):  # noqa: N818 - named for what it is
    """An error that cannot be made from its message alone."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} {other}")


def _told(_: int) -> Any:
    info: Any = get_worker_info()
    drawn = (random.random(), torch.rand(1).item(), np.random.rand())  # noqa: NPY002 - what torch seeds
    return (info.id, info.num_workers, info.seed, type(info.dataset).__name__, torch.get_num_threads(), *drawn)


def test_workers_are_seeded_and_know_themselves(same: Callable[..., None]) -> None:
    """Three generators are seeded from the base seed and the worker's number; the main process is no worker."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, None, num_workers=2, generator=torch.Generator().manual_seed(3))
        return [list(loader), get_worker_info(), torch.rand(1)]

    same(check, Made(_told))


def test_workers_are_begun_by_a_function(same: Callable[..., None]) -> None:
    """A worker_init_fn is called in each worker, after it was seeded and before it loads."""

    def check(kind: Any, data: Any) -> Any:
        def begin(number: int) -> None:
            info: Any = get_worker_info()
            info.dataset.make = lambda index: (index, number, torch.initial_seed() == info.seed)

        return list(kind(data, None, num_workers=2, worker_init_fn=begin))

    same(check, Made(_told))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("in_order", [True, False])
def test_the_order_is_kept_or_not(in_order: bool, same: Callable[..., None]) -> None:
    """Batches come in the order of the sampler, whoever loads them; or as they arrive, where that is asked for."""
    # The second worker's next item is asked for once its first one has arrived, or, in order, after the first worker's.
    sign, seen = 1 if in_order else 2, multiprocessing.get_context("fork").Event()

    def make(index: int) -> int:
        if index == 0:
            assert seen.wait(processes.LIMIT)
        elif index >= sign:
            seen.set()
        return index

    def check(kind: Any, data: Any) -> Any:
        seen.clear()
        loaded = list(kind(data, None, num_workers=2, in_order=in_order, prefetch_factor=1))
        return loaded if in_order else (loaded[0] != 0, sorted(loaded))

    same(check, Made(make))


def _raise_odd(index: int) -> int:
    if index == 1:
        raise Odd(1, 2)
    return index


def _raise_key(index: int) -> int:
    return {0: 0, 2: 2, 3: 3}[index]


@pytest.mark.parametrize("make", [_raise_odd, _raise_key])
def test_errors_come_from_workers(make: Callable[[int], int], same: Callable[..., None]) -> None:
    """An error keeps its type where it can be made anew, and says which worker raised it; the others go on."""

    def check(kind: Any, data: Any) -> Any:
        batches = iter(kind(data, None, num_workers=1))
        found: list[Any] = []
        for _ in data:
            try:
                found.append(next(batches))
            except Exception as error:  # noqa: BLE001 - whatever it is is compared
                found.append((type(error).__name__, str(error)))
            if len(found) == 4:
                break
        return [*found, next(batches, "end")]

    same(check, Made(make))


@pytest.mark.long
def test_a_worker_that_cannot_begin_says_so_at_the_first_batch(same: Callable[..., None]) -> None:
    """What a worker_init_fn raises comes in place of the first batch."""

    def check(kind: Any, data: Any) -> Any:
        def begin(_: int) -> None:
            raise ValueError("not today")

        batches = iter(kind(data, None, num_workers=1, worker_init_fn=begin))
        return next(batches)

    same(check, Made(_told))


# torch's handler of SIGCHLD raises wherever the main thread is: also in its iterator's own destructor, if the worker's
# end is told of as late as that.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*_MultiProcessingDataLoaderIter.__del__")
def test_a_dead_worker_is_an_error(same: Callable[..., None]) -> None:
    """A worker that ends of itself raises RuntimeError in the loop, with the number of its process."""
    same(lambda kind, data: list(kind(data, None, num_workers=1)), Made(lambda _: os._exit(3)))


def test_a_late_batch_is_an_error(same: Callable[..., None]) -> None:
    """A batch that takes longer than the time-out raises torch's error."""
    release = multiprocessing.get_context("fork").Event()

    def check(kind: Any, data: Any) -> Any:
        release.clear()
        try:
            return next(iter(kind(data, None, num_workers=1, timeout=0.1)))
        finally:
            release.set()

    same(check, Made(lambda _: release.wait(processes.LIMIT)))


STREAMS: dict[str, tuple[Shard, dict[str, Any]]] = {
    "one by one": (Shard(5), {"batch_size": None}),
    "batches": (Shard(5), {"batch_size": 2}),
    "whole batches": (Shard(5), {"batch_size": 2, "drop_last": True}),
    "each worker all": (Shard(3), {"batch_size": 2, "num_workers": 2}),
    "each worker its own": (Shard(7, step=2), {"batch_size": 2, "num_workers": 2, "persistent_workers": True}),
    "more than said": (Shard(5, length=3), {"batch_size": None}),
    "more than said, by workers": (Shard(2, length=2), {"batch_size": None, "num_workers": 2}),
    "as many as said": (Shard(5, length=5), {"batch_size": 2}),
    "nothing": (Shard(0, length=0), {"batch_size": 2}),
}


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(("stream", "arguments"), STREAMS.values(), ids=list(STREAMS))
def test_streams_are_torchs(stream: Shard, arguments: dict[str, Any], same: Callable[..., None]) -> None:
    """Iterable data sets are loaded, measured and warned of as in torch."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, **arguments)
        samplers = (type(loader.sampler).__name__, type(loader.batch_sampler).__name__, loader._auto_collation)
        try:
            length: Any = len(loader)
        except TypeError as error:
            length = str(error)
        epochs = [list(loader) for _ in range(1 if loader.num_workers and not loader.persistent_workers else 2)]
        return [samplers, length, loader._IterableDataset_len_called, epochs]

    same(check, stream)
