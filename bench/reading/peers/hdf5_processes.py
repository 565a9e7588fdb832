"""h5py in several processes, which wait for work and write into shared memory: how its lock is got around."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory

import h5py
import hdf5plugin  # noqa: F401 - registers the filters
import numpy as np

from bench.reading.contender import Entry, Job, Setting
from bench.reading.peers.hdf5 import caches
from bench.reading.samples import DATASET
from voxload.geometry import Box

_PATIENCE = 120.0
"""Seconds that a worker has for one answer."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a box and its place in the buffer."""

    source: Box
    """Where in the sample."""
    index: int
    """Which box of the case."""
    target: Box
    """Where in that box's part of the buffer."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is to read, again and again."""

    path: str
    """HDF5 file."""
    cache: int | None
    """Bytes of its chunk cache; None for the default."""
    memory: str
    """Name of the shared memory that holds the buffer."""
    shape: tuple[int, ...]
    """Extents of the buffer."""
    dtype: str
    """Type of the buffer."""
    parts: tuple[Part, ...]
    """The worker's share."""


def divide(job: Job, workers: int) -> list[tuple[Part, ...]]:
    """Share the boxes out so that no chunk is decoded twice: whole crops, else layers or rows of chunks."""
    boxes = job.case.boxes
    if len(boxes) >= workers > 1:
        parts = [Part(box, index, Box.whole(box.shape)) for index, box in enumerate(boxes)]
        return [tuple(parts[worker::workers]) for worker in range(workers)]
    box = boxes[0]
    step = job.sample.chunk or -(-box.shape[0] // workers)
    layers = _cuts(box.start[0], box.stop[0], step, is_grid=job.sample.chunk is not None)
    rows = [(box.start[1], box.stop[1])]
    if len(layers) % workers:
        rows = _cuts(box.start[1], box.stop[1], step, is_grid=True)
    pieces = [
        Box((low, first, box.start[2]), (high, last, box.stop[2])) for low, high in layers for first, last in rows
    ]
    parts = [Part(piece, 0, piece.shift(tuple(-start for start in box.start))) for piece in pieces]
    edges = [round(worker * len(parts) / workers) for worker in range(workers + 1)]
    return [tuple(parts[low:high]) for low, high in pairwise(edges)]


def _cuts(start: int, stop: int, step: int, *, is_grid: bool) -> list[tuple[int, int]]:
    """Cut ``[start, stop)`` at multiples of `step`, counted from 0 or from `start`."""
    first = (start // step + 1) * step if is_grid else start + step
    edges = [start, *range(first, stop, step), stop]
    return list(pairwise(edges))


def work(pipe: Connection) -> None:
    """Serve one parent: an Order opens a file, "read" reads its parts, "close" closes it, "stop" ends."""
    file: h5py.File | None = None
    memory: SharedMemory | None = None
    order: Order | None = None
    while (word := pipe.recv()) != "stop":
        if isinstance(word, Order):
            order, file, memory = word, h5py.File(word.path, "r", rdcc_nbytes=word.cache), SharedMemory(word.memory)
            out = np.ndarray(word.shape, word.dtype, memory.buf)
        elif file is None or memory is None or order is None:
            raise RuntimeError(f"{word!r} before an order")
        elif word == "read":
            for part in order.parts:
                file[DATASET].read_direct(out, part.source.slices, (part.index, *part.target.slices))
        else:
            file.close()
            del out
            memory.close()
        pipe.send("done")


class Crew:
    """Worker processes; started once, for starting one takes longer than most reads."""

    def __init__(self) -> None:
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []

    def grow(self, count: int) -> None:
        """Start workers until there are `count`."""
        context = multiprocessing.get_context("spawn")
        while len(self._pipes) < count:
            mine, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def tell(self, words: Iterable[object]) -> None:
        """Send one word to each worker, as many as there are words, and wait until all have done it."""
        said = list(words)
        told = self._pipes[: len(said)]
        for pipe, word in zip(told, said, strict=True):
            pipe.send(word)
        for pipe in told:
            if not pipe.poll(_PATIENCE):
                raise SystemExit(f"a worker process gave no answer within {_PATIENCE:.0f} s")
            pipe.recv()

    def stop(self) -> None:
        """End all workers."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if process.is_alive():
                pipe.send("stop")
            process.join(_PATIENCE)
        self._pipes.clear()
        self._processes.clear()


CREW = Crew()


class CrewSession:
    """The workers with one sample open, and the memory that they write to."""

    def __init__(self, job: Job, workers: int) -> None:
        self._workers = workers
        self._memory = SharedMemory(create=True, size=job.out.nbytes)
        self.out = np.ndarray(job.out.shape, job.out.dtype, self._memory.buf)
        CREW.grow(workers)
        place = (str(job.sample.path), caches(job)[-1], self._memory.name, job.out.shape, str(job.out.dtype))
        CREW.tell(Order(*place, parts) for parts in divide(job, workers))

    def prepare(self) -> None:
        """Do nothing."""

    def read(self) -> None:
        """Let each worker read its share."""
        CREW.tell(["read"] * self._workers)

    def close(self) -> None:
        """Close the file in the workers and give the memory back."""
        CREW.tell(["close"] * self._workers)
        del self.out
        self._memory.close()
        self._memory.unlink()


def entries(job: Job) -> Iterable[Entry]:
    """Return one row for each number of processes above one."""
    if job.sample.layout.family != "hdf5":
        return
    for workers in job.threads:
        if workers > 1:
            setting = Setting("", partial(CrewSession, workers=workers))
            yield Entry("h5py-processes", f"h5py, {workers} processes", workers, (setting,))
