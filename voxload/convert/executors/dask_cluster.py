"""Cluster: a Dask cluster as its client sees it, whose workers write the volumes of a conversion.

ClusterMachines: the workers of a Dask cluster, which write the volumes of a conversion. This process holds the
folder's lock, plans, and writes the catalogue; each volume is one task. All must see the same file system under the
same paths. A volume whose worker dies is given to another one, which takes it up where its record ends; `volume_lock`
keeps off a worker that only seemed dead.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from voxload.convert.executors.dask_task import TOPIC, ClusterTask, dask_library
from voxload.convert.executors.local import Tell
from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.write.pipeline import Tally
from voxload.errors import NotFoundError, StorageError, UsageError, VoxloadError
from voxload.files.regular import check_regular, parse_json, read_document

_CONNECT = 10.0
"""Seconds in which a scheduler must answer."""
_WORKERS = 600.0
"""Seconds to wait for a worker while there is none: batch systems start them when they please."""
_CHECK = 5.0
"""Seconds without news after which the cluster is looked at."""
_AHEAD = 2
"""Volumes a worker that the scheduler knows of: one is written, one waits. The scheduler keeps all that it knows of in
memory, and there may be a hundred thousand."""
_RETRIES = 5
"""Times that a volume is tried again which another worker still writes, a minute each."""


@contextmanager
def connected(scheduler: str) -> Iterator[Cluster]:
    """Connect to a cluster by its scheduler's address or by the path of its scheduler file.

    Raises
    ------
    UsageError
        When Dask distributed is not installed.
    NotFoundError
        When no scheduler answers, or no worker joins it within ten minutes.
    """
    dask = dask_library()
    try:
        client = dask.Client(_address(scheduler), timeout=_CONNECT, set_as_default=False, name="voxload-convert")
    except (OSError, ValueError) as error:
        raise NotFoundError(
            f"--scheduler {scheduler}",
            found=f"no answer ({str(error).splitlines()[0]})",
            expected="the address of a Dask scheduler, such as tcp://host:8786, or the path of its scheduler file",
            remedy="start one with: dask scheduler --scheduler-file FILE",
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_WORKERS)
        except TimeoutError as error:
            raise _no_workers(scheduler) from error
        yield Cluster(client, scheduler)


class Cluster:
    """The workers that a scheduler knows of; they may come and go.

    Parameters
    ----------
    client
        Dask's client.
    name
        How the caller named the scheduler.
    """

    def __init__(self, client: Any, name: str) -> None:
        self._client, self._name = client, name

    @property
    def threads(self) -> int:
        """Threads of the worker that has the fewest."""
        return min(self._workers().values(), default=1)

    def submit(self, task: ClusterTask) -> Any:
        """Send a task and return its future."""
        key = (f"voxload-convert-{task.run}", task.number)
        return self._client.submit(task, key=key, pure=False, retries=_RETRIES)

    def room(self) -> int:
        """Return how many tasks the scheduler should know of."""
        return _AHEAD * max(1, len(self._workers()))

    @contextmanager
    def listening(self, news: SimpleQueue[Any]) -> Iterator[None]:
        """Put what workers tell into a queue."""
        self._client.subscribe_topic(TOPIC, lambda event: news.put(event[1]))
        try:
            yield
        finally:
            if self._client.status == "running":
                self._client.unsubscribe_topic(TOPIC)

    def cancel(self, futures: Sequence[Any]) -> None:
        """Tell the scheduler that nobody waits for these any more."""
        if futures and self._client.status == "running":
            self._client.cancel(futures)

    def next_of(self, news: SimpleQueue[Any]) -> Any:
        """Wait for news; raises StorageError when there is no worker any more that could make any."""
        gone_since: float | None = None
        while True:
            try:
                return news.get(timeout=_CHECK)
            except Empty:
                if self._workers():
                    gone_since = None
                    continue
            now = time.monotonic()
            gone_since = now if gone_since is None else gone_since
            if now - gone_since > _WORKERS:
                raise _no_workers(self._name)

    def result(self, future: Any, volume: VolumePlan) -> Tally:
        """Return what a task gave; raises its error, or says how the cluster failed it."""
        try:
            found = future.result()
        except VoxloadError:
            raise
        except dask_library().KilledWorker as error:
            raise StorageError(
                f"{volume.final}",
                found=f"every worker that wrote it died, {error.allowed_failures + 1} of them",
                expected="workers that live",
                remedy="see their logs; give them more memory than --max-memory, then run the same command again",
            ) from error
        except CancelledError as error:
            raise _lost(self._name) from error
        except ImportError as error:
            raise UsageError(
                f"workers of {self._name}",
                found=f"{error}",
                expected="the same packages as here",
                remedy='pip install "voxload[cluster]" of the same version where they run',
            ) from error
        if isinstance(found, VoxloadError):
            raise found
        if not volume.final.exists():
            raise StorageError(
                f"{volume.final}",
                found="nothing, although a worker has written it",
                expected="a file system that this process shares with all workers",
                remedy="choose a folder that all machines see under the same path",
            )
        tally: Tally = found
        return tally

    def _workers(self) -> dict[str, int]:
        """Return the threads of each worker; raises StorageError when the scheduler is lost."""
        try:
            return dict(self._client.nthreads())
        except OSError as error:
            raise _lost(self._name) from error


def _address(scheduler: str) -> str:
    """Return the address that a scheduler file holds, or the one that was given."""
    path = Path(scheduler)
    if "://" not in scheduler:
        check_regular(path)
    if "://" in scheduler or not path.is_file():
        return scheduler
    try:
        return str(parse_json(read_document(path))["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"--scheduler {scheduler}", found="another file", expected="what dask scheduler --scheduler-file writes"
        ) from error


def _no_workers(name: str) -> NotFoundError:
    return NotFoundError(
        f"--scheduler {name}", found=f"no worker for {_WORKERS:g} s", expected="one or more", remedy="start workers"
    )


def _lost(name: str) -> StorageError:
    return StorageError(
        f"--scheduler {name}",
        found="the connection lost, or its tasks cancelled",
        expected="a scheduler that lives as long as the conversion",
        remedy="run the same command again: what is stored is kept",
    )


class DaskExecutor:
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
