"""voxload itself, through its public names."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial

from bench.reading.contender import Entry, Job, Setting
from bench.reading.samples import DATASET
from voxload.readers import Location, open_reader
from voxload.readers.requests import Request, read_many
from voxload.readers.team import set_threads, team

_PATIENCE = 30.0
"""Seconds that a helper thread has to start."""


class VoxloadSession:
    """A reader and the number of threads that one read may use."""

    def __init__(self, job: Job, threads: int) -> None:
        sample = job.sample
        self.out = job.out
        self._boxes = job.case.boxes
        self._threads = threads
        dataset = DATASET if sample.layout.family == "hdf5" else ""
        self._reader = open_reader(Location(str(sample.path), dataset))

    def prepare(self) -> None:
        """Set the number of threads, which holds for the whole process, and let each of them start."""
        if team().threads != self._threads:
            set_threads(self._threads)
            started = threading.Barrier(self._threads)
            team().run(partial(_meet, started), range(self._threads))

    def read(self) -> None:
        """Read all boxes at once, as tensorstore is asked to."""
        read_many(self._reader, [Request(box, self.out[index : index + 1]) for index, box in enumerate(self._boxes)])

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def _meet(started: threading.Barrier, _: int) -> None:
    started.wait(_PATIENCE)


def entries(job: Job) -> Iterable[Entry]:
    """Return one row for each number of threads."""
    for threads in job.threads:
        setting = Setting("", partial(VoxloadSession, threads=threads))
        yield Entry("voxload", f"voxload, {threads} thread{'s' * (threads > 1)}", threads, (setting,))
