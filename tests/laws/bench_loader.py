"""The laws of a BenchLoader: what every loader that `voxload bench run` compares must pass.

A test makes samples, a task for one rank, and calls `check_loader` with a kind of loader and the blocks that the rank
should get, which are VolumeDataset's.
"""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Mapping

import torch

from voxload.benchmark.loaders.protocol import BenchLoader, LoaderKind, Task, epoch_indices

_FEEDER = "QueueFeederThread"
"""Threads of multiprocessing's queues, which close their pipes: torch tells them to end and does not wait for it."""
Blocks = Callable[[int], torch.Tensor]
"""Returns the block that is expected of a sample."""


def check_loader(kind: LoaderKind, task: Task, expected: Blocks) -> None:
    """Check every law on a loader that is built for a task of several batches."""
    check_words(kind)
    loader = kind.build(task)
    try:
        check_epoch(loader, task, expected, number=0)
        check_left_early(loader, task, expected)
        check_first_batches(loader, task, expected, number=3)
        check_counts(loader.counts())
        left = loader.epoch(4, _indices(task, 4))
        next(left)
    finally:
        loader.close()
    del left
    check_nothing_left()


def check_words(kind: LoaderKind) -> None:
    """Check that a kind says what it is."""
    assert kind.name
    assert " " not in kind.name
    assert kind.title
    assert kind.formats
    assert isinstance(kind.needs, tuple)


def check_epoch(loader: BenchLoader, task: Task, expected: Blocks, *, number: int) -> None:
    """Check that an epoch gives all of its batches, in order and bit for bit."""
    indices = _indices(task, number)
    assert _check_batches(loader.epoch(number, indices), task, expected, indices=indices) == len(indices)


def check_left_early(loader: BenchLoader, task: Task, expected: Blocks) -> None:
    """Check that an epoch can be left after a batch, and that the next one is whole even if somebody holds it."""
    indices = _indices(task, 1)
    size = task.workload.share.batch_size
    left = loader.epoch(1, indices)
    _check_batches(itertools.islice(left, 1), task, expected, indices=indices[:size])
    check_epoch(loader, task, expected, number=2)
    del left


def check_first_batches(loader: BenchLoader, task: Task, expected: Blocks, *, number: int) -> None:
    """Check that of an epoch only the first batches can be asked for."""
    indices = _indices(task, number)[: task.workload.share.batch_size]
    assert _check_batches(loader.epoch(number, indices), task, expected, indices=indices) == len(indices)


def check_counts(counts: Mapping[str, object]) -> None:
    """Check that what a loader counts are words that are known."""
    assert set(counts) <= {"bytes_read", "bytes_decoded", "seconds_stalled", "sources"}


def check_nothing_left() -> None:
    """Check that no worker process is left; who calls this watches threads and files."""
    assert not multiprocessing.active_children()
    for thread in threading.enumerate():
        if thread.name == _FEEDER:
            thread.join(timeout=5)


def _check_batches(batches: Iterator[torch.Tensor], task: Task, expected: Blocks, *, indices: tuple[int, ...]) -> int:
    """Compare batches, each before the next is asked for; return how many samples came."""
    size, came = task.workload.share.batch_size, 0
    for batch in batches:
        own = indices[came : came + size]
        wanted = torch.stack([expected(index) for index in own])
        assert batch.shape == wanted.shape
        assert batch.dtype == wanted.dtype
        assert batch.contiguous().numpy().tobytes() == wanted.numpy().tobytes(), f"samples {own}"
        came += len(own)
    return came


def _indices(task: Task, number: int) -> tuple[int, ...]:
    return epoch_indices(task.workload.share, len(task.data), task.grid, number)
