"""The process of one run: ``python -m bench.loading.worker JOB ACCOUNT``."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from bench.loading.contender import CONTENDERS, Loading
from bench.loading.job import Account, Job
from bench.loading.memory import held_by

LIMIT = 150.0
"""Seconds after which a run says where it is, and ends."""
_STRIDE = 8
"""Voxels between those that are summed."""


def run(job: Job) -> Account:
    """Run all epochs and return what was seen."""
    peer = CONTENDERS[job.contender].load()
    base = held_by(os.getpid())
    begin = perf_counter()
    loading = peer.build(job)
    first, epochs, sums = 0.0, [], []
    for number in range(job.case.epochs):
        found: list[int] = []
        for batch in loading.epoch():
            if not number and not found:
                first = perf_counter() - begin
            found += _sums(batch)
            del batch  # as a training step that has used it
        end = perf_counter()
        epochs.append(end - begin)
        sums.append(tuple(sorted(found)))
        begin = end
    steps = tuple(_steps(loading, job))
    loading.close()
    return Account(first, tuple(epochs), steps, tuple(sums), base)


def _steps(loading: Loading, job: Job) -> Iterator[float]:
    """Yield the seconds from one request for a batch to the next, over the ends of epochs, without the first."""
    asked: float | None = None
    for _ in range(job.steady_epochs):
        for batch in loading.epoch():
            _sums(batch)
            del batch
            time.sleep(job.compute)
            now = perf_counter()
            if asked is not None:
                yield now - asked
            asked = now


def _sums(batch: torch.Tensor) -> list[int]:
    few = batch.numpy()[..., ::_STRIDE, ::_STRIDE, ::_STRIDE]
    return [zlib.crc32(np.ascontiguousarray(sample).tobytes()) for sample in few]


def main(words: Sequence[str]) -> None:
    """Run one contender."""
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    job, account = (Path(word) for word in words)
    run(Job.read(job)).write(account)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1:])
