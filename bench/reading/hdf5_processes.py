"""h5py in several processes, which wait for work and write into shared memory: how its lock is got around."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any

import hdf5plugin  # noqa: F401 - registers the filters
import numpy as np

from bench.harness.children import Child, started
from bench.harness.samples import Field
from bench.reading.contender import Entry, Job, Session, Setting
from bench.reading.hdf5 import caches
from voxload.benchmark.loaders.blocks import Slices
from voxload.benchmark.loaders.hdf5_array import Hdf5Array
from voxload.benchmark.loaders.protocol import Volume
from voxload.geometry import Box

_PATIENCE = 120.0
"""Seconds that a worker has for one answer."""
Part = tuple[int, Box, Box]
"""A piece of a box: which box of the case, where in the sample, and where in that box's part of the buffer."""


def divide(job: Job, workers: int) -> list[Sequence[Part]]:
    """Share the boxes out so that no chunk is decoded twice: whole crops, else layers or rows of chunks."""
    boxes = job.case.boxes
    if len(boxes) >= workers > 1:
        parts = [(index, box, Box.whole(box.shape)) for index, box in enumerate(boxes)]
        return [parts[worker::workers] for worker in range(workers)]
    box = boxes[0]
    step = job.sample.chunk or -(-box.shape[0] // workers)
    layers = _cuts(box.start[0], box.stop[0], step, is_grid=job.sample.chunk is not None)
    rows = [(box.start[1], box.stop[1])]
    if len(layers) % workers:
        rows = _cuts(box.start[1], box.stop[1], step, is_grid=True)
    pieces = [
        Box((low, first, box.start[2]), (high, last, box.stop[2])) for low, high in layers for first, last in rows
    ]
    parts = [(0, piece, piece.relative_to(box.start)) for piece in pieces]
    edges = [round(worker * len(parts) / workers) for worker in range(workers + 1)]
    return [parts[low:high] for low, high in pairwise(edges)]


def _cuts(start: int, stop: int, step: int, *, is_grid: bool) -> list[tuple[int, int]]:
    """Cut ``[start, stop)`` at multiples of `step`, counted from 0 or from `start`."""
    first = (start // step + 1) * step if is_grid else start + step
    edges = [start, *range(first, stop, step), stop]
    return list(pairwise(edges))


class Worker:
    """One process's share of a read, again and again: called with ``open`` and what to read, ``read``, or ``close``."""

    def __init__(self) -> None:
        self._array: Hdf5Array | None = None
        self._reads: list[tuple[Slices, Field, Slices]] = []

    def __call__(self, word: str, *order: Any) -> None:
        """Do what is asked; raises RuntimeError when nothing is open."""
        if word == "open":
            self._open(*order)
        elif self._array is None:
            raise RuntimeError(f"{word!r} before there was something to read")
        elif word == "read":
            for source, out, target in self._reads:
                self._array.read(source, out, target)
        else:
            self._array.close()
            self._reads.clear()

    def _open(self, volume: dict[str, Any], cache: int | None, memory: dict[str, Any], parts: list[Any]) -> None:
        self._array = Hdf5Array(Volume(**volume), cache)
        out = _mapped(**memory)
        for index, source, target in parts:
            read = (Box(**source).slices, out[index], Box(**target).slices)
            read[1][read[2]] = 0  # pages that this process has not touched would be made while the clock runs
            self._reads.append(read)


def _mapped(path: str, dtype: str, shape: Sequence[int]) -> Field:
    return np.asarray(np.memmap(path, dtype, "r+", shape=tuple(shape)))


class Crew(ExitStack):
    """Worker processes, which stay until the block ends: starting one takes longer than most reads."""

    def __init__(self) -> None:
        super().__init__()
        self._workers: list[Child] = []

    def grow(self, count: int) -> None:
        """Start workers until there are `count`."""
        while len(self._workers) < count:
            self._workers.append(self.enter_context(started("bench.reading.hdf5_processes:Worker")))
            self.callback(self._workers.clear)

    def tell(self, orders: Sequence[tuple[Any, ...]]) -> None:
        """Send one order to each worker, as many as there are orders, and wait until all have done it.

        Raises TimeoutError when one does not in time, and RuntimeError when one has ended.
        """
        told = self._workers[: len(orders)]
        for worker, order in zip(told, orders, strict=True):
            worker.send(*order)
        for worker in told:
            worker.answer(_PATIENCE)


CREW = Crew()


def _open(job: Job, workers: int) -> Session:
    """Let workers open the sample, and the memory that they write to."""
    CREW.grow(workers)
    descriptor = os.memfd_create("voxload-bench")
    os.ftruncate(descriptor, job.out.nbytes)
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    memory: dict[str, Any] = {"path": path, "dtype": str(job.out.dtype), "shape": job.out.shape}
    common = asdict(job.sample.volume), caches(job)[-1], memory
    CREW.tell(
        [
            ("open", *common, [(index, asdict(source), asdict(target)) for index, source, target in parts])
            for parts in divide(job, workers)
        ]
    )

    def close() -> None:
        CREW.tell([("close",)] * workers)
        os.close(descriptor)

    return Session(_mapped(**memory), partial(CREW.tell, [("read",)] * workers), close)


def entries(job: Job) -> Iterator[Entry]:
    """Yield one row for each number of processes above one."""
    for workers in job.threads:
        if workers > 1:
            setting = Setting("", partial(_open, workers=workers))
            yield Entry("h5py-processes", f"h5py, {workers} processes", workers, (setting,))
