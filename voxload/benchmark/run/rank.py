"""RankRun: one rank's part of a benchmark run: it takes batches, computes in make-believe, and notes what it saw."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from torch import Tensor

from voxload.benchmark.loaders.protocol import BenchLoader, LoaderKind, Task, epoch_indices
from voxload.benchmark.measure.kernel import KernelCounter
from voxload.benchmark.measure.rank_group import RankGroup
from voxload.benchmark.measure.record import Epoch, Record, Steps, count_difference
from voxload.benchmark.workload.emulation import Emulator
from voxload.benchmark.workload.workload import EPOCH

Tell = Callable[[dict[str, Any]], None]
"""Hears of each step that rank 0 has done, as values that are fit for JSON."""
Check = Callable[[int, Tensor], str | None]
"""Compares the block of a sample, by its index, with what it should be; returns what is wrong."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a rank's run makes use of."""

    kind: LoaderKind
    shared: RankGroup
    cool: Callable[[int], float]
    """Empties the page cache before an epoch where that is asked for; returns the share of the data left in it."""
    check: Check | None = None
    """Verifies blocks; None for not at all."""


class RankRun:
    """One repetition on one rank; made and run by every rank of the job at the same point.

    Parameters
    ----------
    task
        What to load.
    context
        By what.
    """

    def __init__(self, task: Task, context: RunContext) -> None:
        self._task, self._context = task, context
        self._workload = task.workload
        self._emulator = Emulator(task.workload.emulation)
        self._counter = KernelCounter()
        self._wrong: list[str] = []
        self._start = 0.0

    def run(self, tell: Tell) -> Record:
        """Go through all epochs and return what this rank measured.

        Raises what the loader raises, and UsageError for what it cannot do.
        """
        resident = self._context.cool(0)
        self._context.shared.wait()
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("default")
            self._start = perf_counter()
            with closing(self._context.kind.build(self._task)) as loader:
                epochs = []
                for number in range(self._workload.length.epochs):
                    if number:
                        resident = self._context.cool(number)
                    self._context.shared.wait()
                    epochs.append(self._epoch(loader, number, tell, resident=resident))
                    if self._is_late():
                        break
                memory = self._counter.memory()
        first = epochs[0].steps
        first_batch = first.begin[0] + first.stall[0] if first.begin else 0.0
        return Record(
            rank=self._context.shared.rank,
            node=socket.gethostname(),
            epochs=tuple(epochs),
            first_batch=first_batch,
            peak_memory=memory.peak,
            shared_memory=memory.shared,
            wrong=tuple(self._wrong),
            notes=tuple(dict.fromkeys(str(each.message) for each in noted)),
        )

    def _epoch(self, loader: BenchLoader, number: int, tell: Tell, *, resident: float) -> Epoch:
        indices = self._indices(number)
        counted = loader.counts()
        mark = self._counter.mark()
        begin = perf_counter()
        steps = _Noted()
        batches = loader.epoch(number, indices)
        size = self._workload.share.batch_size
        for step in range(-(-len(indices) // size)):
            own = indices[step * size : (step + 1) * size]
            self._step(batches, (number, step), own, steps)
            tell({"event": "step", "epoch": number, "step": step, "samples": len(own)})
            if self._is_late():
                break
        wall = perf_counter() - begin
        kernel = self._counter.since(mark)
        found = Epoch(steps.as_steps(), wall, kernel, count_difference(loader.counts(), counted), resident)
        if self._workload.coldness.when == EPOCH and isinstance(batches, Generator):
            batches.close()  # one that was cut short reads ahead, while the page cache is emptied for the next one
        return found

    def _step(self, batches: Iterator[Tensor], place: tuple[int, int], own: tuple[int, ...], steps: _Noted) -> None:
        """Take one batch, compute, and wait for the others."""
        asked = perf_counter()
        batch = next(batches)
        came = perf_counter()
        self._verify(own, batch)
        computed = self._emulator.compute(*place, batch)
        done = perf_counter()
        if self._workload.lockstep:
            self._context.shared.wait()
        steps.add(
            begin=asked - self._start,
            stall=came - asked,
            compute=computed,
            peers=perf_counter() - done,
            samples=len(own),
            nbytes=batch.nbytes,
            alone=self._emulator.alone(*place),
        )

    def _verify(self, own: tuple[int, ...], batch: Tensor) -> None:
        if self._context.check is None:
            return
        for index, block in zip(own, batch, strict=True):
            wrong = self._context.check(index, block)
            if wrong:
                self._wrong.append(wrong)

    def _indices(self, number: int) -> tuple[int, ...]:
        """Return this group's samples of an epoch, as many as its steps take."""
        share, most = self._workload.share, self._workload.length.steps
        indices = epoch_indices(share, len(self._task.data), self._task.grid, number)
        return indices[: most * share.batch_size] if most else indices

    def _is_late(self) -> bool:
        """Tell whether rank 0 finds the time up; all ranks must know, or one would wait for ever."""
        limit = self._workload.length.seconds
        return bool(limit) and self._context.shared.first(perf_counter() - self._start > limit, bool)


class _Noted:
    """Columns of `Steps` that grow."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []

    def add(self, **row: float | None) -> None:
        self._rows.append({name: value for name, value in row.items() if value is not None})

    def as_steps(self) -> Steps:
        names = Steps.__dataclass_fields__
        columns: Any = {name: tuple(row[name] for row in self._rows if name in row) for name in names}
        return Steps(**columns)
