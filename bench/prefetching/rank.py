"""One rank of a run: torchrun starts four of them with ``-m bench.prefetching.rank JOB``."""

from __future__ import annotations

import dataclasses
import faulthandler
import sys
import time
import zlib
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import voxload
from bench.prefetching.contender import Contender, build
from bench.prefetching.job import Account, EpochAccount, Job
from bench.prefetching.samples import SPATIAL
from voxload.readers.remote import obstoreobjects  # noqa: F401 - imported before the clock runs, for all contenders

_TIMEOUT = timedelta(minutes=3)
_STRIDE = 16
"""Voxels between those that are summed."""


class Rank:
    """Trains for some epochs: a batch, an exchange with all ranks, some time of computing.

    Parameters
    ----------
    job
        What is to be done.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._grid = voxload.ProcessGrid.from_env(SPATIAL)
        # Compiles casts, imports readers: what a process does once is no part of loading.
        warm_up = voxload.VolumeDataset([job.warm_up], grid=self._grid)
        warm_up[0]
        warm_up.close()
        data = voxload.VolumeDataset(job.urls, grid=self._grid)
        self._loader = build(Contender.parse(job.contender), data, job.recipe, memory=job.memory)
        self._stream: list[int] = []

    def run(self) -> Account:
        """Run all epochs and return what was seen."""
        dist.barrier()
        epochs = tuple(self._epoch() for _ in range(self._job.recipe.epochs))
        traffic: dict[str, dict[str, float]] = {}
        begin = perf_counter()
        if isinstance(self._loader, voxload.DataLoader):
            sources = self._loader.stats().sources
            traffic = {kind: dataclasses.asdict(each) for kind, each in sources.items()}
            self._loader.close()
        return Account(epochs, tuple(self._stream), traffic, perf_counter() - begin)

    def _epoch(self) -> EpochAccount:
        begin, stalled = perf_counter(), self._stalled()
        wait, steps = 0.0, 0
        iterator = iter(self._loader)
        asked = begin
        while True:
            batch = next(iterator, None)
            wait += perf_counter() - asked
            if batch is None:
                break
            self._train(batch)
            del batch
            steps += 1
            asked = perf_counter()
        return EpochAccount(begin, perf_counter(), wait, self._stalled() - stalled, steps)

    def _train(self, batch: Any) -> None:
        """Do what training does, as far as time goes: exchange something, then be busy elsewhere."""
        dist.all_reduce(torch.zeros(16))
        end = perf_counter() + self._job.compute
        few = batch[0].numpy()[..., ::_STRIDE, ::_STRIDE, ::_STRIDE]
        self._stream.append(zlib.crc32(np.ascontiguousarray(few).tobytes()))
        time.sleep(max(0.0, end - perf_counter()))

    def _stalled(self) -> float:
        return self._loader.stats().seconds_stalled if isinstance(self._loader, voxload.DataLoader) else 0.0


def main(words: Iterable[str]) -> None:
    """Run one rank."""
    (path,) = words
    job = Job.read(Path(path))
    faulthandler.dump_traceback_later(job.limit, exit=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=_TIMEOUT)
    try:
        rank = Rank(job)
        rank.run().write(Path(job.folder) / f"{dist.get_rank()}.json")
        dist.barrier()
        faulthandler.cancel_dump_traceback_later()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
