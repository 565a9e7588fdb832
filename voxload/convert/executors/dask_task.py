"""ClusterTask: what a worker of a Dask cluster does with one volume.

ClusterTask: what a worker of a Dask cluster does with one volume. A worker process writes one volume at a time,
however many tasks Dask gives it at once, so that the memory of a conversion is that of a process. Its other threads
encode.

A task whose result nobody waits for any more, because the conversion was ended, its client died, or the scheduler gave
the volume to another worker, cannot be stopped by Dask. It looks after every slab whether it is wanted, and lets go of
the volume where it is not.
"""

from __future__ import annotations

import importlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.write.checksums import SampleChecksums
from voxload.convert.write.pipeline import Tally
from voxload.convert.write.volume import write_volume
from voxload.errors import UsageError, VoxloadError
from voxload.files.lock import BusyError
from voxload.units import format_bytes


def dask_library() -> Any:
    """Return the module ``distributed``; raises UsageError when it is not installed."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError(
            "--scheduler", found="no package distributed", expected="it", remedy='pip install "voxload[cluster]"'
        ) from error


TOPIC = "voxload-convert"
"""Topic of the scheduler's events under which workers tell how far they are."""
_WANTED = frozenset({"executing", "long-running", "resumed"})
"""States of a task under way whose result is waited for."""
_AT_WORK = frozenset({"running", "paused", "closing_gracefully"})
"""States of a worker that the scheduler counts on; one that lost it closes, and its volume is another one's."""
_ONE = threading.Lock()


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """One volume for a worker; can be sent there."""

    run: str
    """Id of the conversion, in what the worker tells."""
    number: int
    """Number of the volume, in what the worker tells."""
    volume: VolumePlan
    """The volume."""
    threads: int
    """Threads that encode."""
    sums: Path | None
    """Folder whose checksums are kept; None where none are wanted."""

    def __call__(self) -> Tally | VoxloadError:
        """Write the volume and return what was done, or the error of it, which Dask shall not try again.

        Raises BusyError, which Dask shall, when another worker still writes the volume.
        """
        worker = dask_library().get_worker()
        watch = _Watch(self, worker, worker.get_current_task())
        try:
            with _ONE:
                watch.check()
                self._check_memory(worker)
                return self._write(watch)
        except BusyError:
            raise
        except VoxloadError as error:
            return error

    def _write(self, watch: _Watch) -> Tally:
        with ThreadPoolExecutor(self.threads, thread_name_prefix="voxload-encode") as workers:
            tally = write_volume(self.volume, workers, threads=self.threads, advance=watch.advance)
        if self.sums is not None:
            SampleChecksums(self.sums).sum_at(self.volume.final)
        return tally

    def _check_memory(self, worker: Any) -> None:
        """Refuse a worker that its nanny would kill for the memory that the volume takes."""
        limit, projected = worker.memory_manager.memory_limit, self.volume.tiling.projected
        if limit and projected > limit:
            raise UsageError(
                f"worker {worker.address}",
                found=f"a memory limit of {format_bytes(limit)}",
                expected=f"the {format_bytes(projected)} that a volume takes, or more",
                remedy="give workers more memory, or use a smaller --max-memory",
            )


@dataclass(slots=True)
class _Watch:
    """Tells how far a task is, and looks whether it is wanted."""

    task: ClusterTask
    """The task."""
    worker: Any
    """Dask's worker."""
    key: Any
    """The task's key."""
    done: int = 0
    """Bytes of voxels converted, by this worker or one before."""

    def advance(self, size: int) -> None:
        """Count and tell; raises as `check` does."""
        self.done += size
        self.worker.log_event(TOPIC, {"run": self.task.run, "number": self.task.number, "done": self.done})
        self.check()

    def check(self) -> None:
        """Raise Dask's Reschedule when nobody waits for the result, which Dask then drops."""
        known = self.worker.state.tasks.get(self.key)
        if known is None or known.state not in _WANTED or self.worker.status.name not in _AT_WORK:
            raise dask_library().Reschedule
