"""tensorstore, writing into the reused buffer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import tensorstore

from bench.reading.contender import Entry, Job, Setting

MODES = {"memmap": "memmap", "read": "default"}
"""How its file driver gets bytes: by a map or by read calls."""


class TensorstoreSession:
    """``ts.array(out).write(source[box])``: its driver decodes, and copies into the buffer that it is given."""

    def __init__(self, job: Job, context: dict[str, Any]) -> None:
        self.out = job.out
        limits = tensorstore.Context(context)
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{job.sample.path}/"}}
        source = tensorstore.open(
            spec, context=limits, open=True, read=True, recheck_cached_metadata=False, recheck_cached_data=False
        ).result()
        # Views of the source and of the buffer are made once: making them is no part of reading.
        self._pairs = [
            (tensorstore.array(job.out[index], context=limits), source[box.slices])
            for index, box in enumerate(job.case.boxes)
        ]

    def prepare(self) -> None:
        """Do nothing."""

    def read(self) -> None:
        """Ask for all boxes at once, then wait for all."""
        for done in [target.write(source) for target, source in self._pairs]:
            done.result()

    def close(self) -> None:
        """Drop the array, which closes its files."""
        self._pairs.clear()


def _context(mode: str, threads: int, reads: int) -> dict[str, Any]:
    return {
        "file_io_mode": {"mode": mode},
        "file_io_concurrency": {"limit": reads},
        "data_copy_concurrency": {"limit": threads},
        "cache_pool": {"total_bytes_limit": 0},
    }


def entries(job: Job) -> Iterable[Entry]:
    """Return one row for each number of threads; modes and limits of reads are tried."""
    if job.sample.layout.family != "zarr":
        return
    for threads in job.threads:
        settings = [
            Setting(
                f"{label}, {reads} reads",
                partial(TensorstoreSession, context=_context(mode, threads, reads)),
            )
            for label, mode in MODES.items()
            for reads in (threads, 4 * threads)
        ]
        title = f"tensorstore, {threads} thread{'s' * (threads > 1)}"
        yield Entry("tensorstore", title, threads, tuple(settings))
