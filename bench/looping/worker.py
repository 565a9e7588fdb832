"""The process of a loop: it takes batches and works, or works alone, when asked."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from voxload.benchmark.loaders import registry
from voxload.benchmark.loaders.protocol import BenchLoader, Task, epoch_indices
from voxload.benchmark.loaders.volumes import dataset_of, volumes_of
from voxload.benchmark.workload.amounts import bytecode, small_operations
from voxload.benchmark.workload.workload import Workload
from voxload.grid import ProcessGrid

LIMIT = 600.0
_WORK = {"python": bytecode, "torch-small": small_operations}


def ready(text: str, work: str, seconds: float) -> Callable[[str, int], list[float]]:
    """Return what makes steps, and tells the seconds that each took but for its batch.

    `text` is a workload as JSON; a step's work is what takes `seconds` alone. Steps are made ``alone`` without batches,
    ``beside`` the loader of these batches, or ``asleep``, with batches and no work.
    """
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    amount = _WORK[work]()
    workload = Workload.from_json(text)
    kind = registry.named(workload.supply.loader)
    registry.prepare(kind)
    grid = ProcessGrid()
    data = dataset_of(workload, grid)
    task = Task(workload, grid, data, volumes_of(data))
    batches = _batches(kind.build(task), task)

    def answer(mode: str, steps: int) -> list[float]:
        took = []
        for _ in range(steps):
            if mode != "alone":
                next(batches)
            begin = time.perf_counter()
            if mode == "asleep":
                time.sleep(seconds)
            else:
                amount.do(seconds)
            took.append(time.perf_counter() - begin)
        return took

    return answer


def _batches(loader: BenchLoader, task: Task) -> Iterator[Any]:
    """Yield batches of epoch after epoch."""
    for number in count():
        yield from loader.epoch(number, epoch_indices(task.workload.share, len(task.data), task.grid, number))
