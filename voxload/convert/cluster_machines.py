"""ClusterMachines: the workers of a Dask cluster, which write the volumes of a conversion.

This process holds the folder's lock, plans, and writes the catalogue; each volume is one task. All must see the same
file system under the same paths. A volume whose worker dies is given to another one, which takes it up where its record
ends; `volume_lock` keeps off a worker that only seemed dead.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from voxload.convert.cluster import Cluster
from voxload.convert.cluster_task import ClusterTask
from voxload.convert.machines import Tell
from voxload.convert.pipeline import Tally
from voxload.convert.store import VolumePlan


class ClusterMachines:
    """The workers of a cluster, each of which writes one volume at a time.

    Parameters
    ----------
    cluster
        The cluster.
    threads
        Threads that encode, of each worker.
    sums
        Folder whose checksums are kept; None where none are wanted.
    """

    def __init__(self, cluster: Cluster, threads: int, sums: Path | None) -> None:
        self._cluster, self._threads, self._sums = cluster, threads, sums

    def convert(self, volumes: Sequence[VolumePlan], tell: Tell) -> Generator[Tally, None, None]:
        """Write volumes, as many at once as there are workers; raises the first error of a task."""
        run = uuid.uuid4().hex
        news: SimpleQueue[Any] = SimpleQueue()
        coming = (ClusterTask(run, *one, self._threads, self._sums) for one in enumerate(volumes))
        flying: dict[Any, int] = {}
        seen = _Seen(volumes, tell)
        with self._cluster.listening(news):
            try:
                while True:
                    for task in islice(coming, max(0, self._cluster.room() - len(flying))):
                        future = self._cluster.submit(task)
                        flying[future] = task.number
                        future.add_done_callback(news.put)
                    if not flying:
                        return
                    future = self._next_done(news, seen, run)
                    number = flying.pop(future)
                    tally = self._cluster.result(future, volumes[number])
                    seen.add(number, volumes[number].decoded_bytes)
                    yield tally
            finally:
                self._cluster.cancel(list(flying))

    def _next_done(self, news: SimpleQueue[Any], seen: _Seen, run: str) -> Any:
        """Return the next task that is done, and tell meanwhile how far the others are."""
        while isinstance(found := self._cluster.next_of(news), dict):
            if found["run"] == run:
                seen.add(found["number"], found["done"])
        return found


class _Seen:
    """What was told of each volume; a worker that takes it up from another one begins with less."""

    def __init__(self, volumes: Sequence[VolumePlan], tell: Tell) -> None:
        self._volumes, self._tell = volumes, tell
        self._done: dict[int, int] = {}

    def add(self, number: int, done: int) -> None:
        """Tell what is new of the `done` bytes of a volume."""
        more = done - self._done.get(number, 0)
        if more > 0:
            self._done[number] = done
            self._tell(self._volumes[number].manifest.name, more)
