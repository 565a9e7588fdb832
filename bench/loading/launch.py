"""Launch: one run in a process of its own, on so many cores, within a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from bench.loading.job import Account, Job
from bench.loading.memory import MemoryWatch
from bench.loading.results import Weight
from bench.loading.worker import LIMIT

_ROOT = Path(__file__).resolve().parents[2]
_GRACE = 20.0
"""Seconds for a run to end by itself."""
_SHOWN = 4000
"""Characters of a failed run's messages that are shown."""
_ACCOUNT = "account.json"
_WEIGHED_EPOCHS = 2
"""Epochs of a run whose memory is watched: beyond the first nothing new is held."""


def time_run(job: Job, *, cores: frozenset[int]) -> Account:
    """Run a job on some cores and return what it saw; nobody looks at it meanwhile.

    Raises
    ------
    RuntimeError
        It failed, or took too long; nothing of it is left running.
    """
    with _started(job, cores) as run:
        return run.account()


def weigh(job: Job, *, cores: frozenset[int]) -> Weight:
    """Run the first epochs of a job and return what it held.

    Looking walks over all pages of a process and keeps it from mapping others: a run that is timed is not looked at.
    Raises what `time_run` raises.
    """
    job = replace(job, case=replace(job.case, epochs=_WEIGHED_EPOCHS), steady_epochs=0)
    with _started(job, cores) as run:
        watch = MemoryWatch(run.process.pid)
        try:
            account = run.account()
        finally:
            peak = watch.stop()
    return Weight(base=account.base, peak=peak)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run under way."""

    job: Job
    process: subprocess.Popen[bytes]
    folder: Path
    messages: IO[bytes]

    def account(self) -> Account:
        """Wait for its end and return what it saw."""
        status = self.process.wait(LIMIT + _GRACE)
        if status:
            said = os.pread(self.messages.fileno(), 1 << 20, 0).decode(errors="replace")[-_SHOWN:]
            raise RuntimeError(f"{self.job.contender}, {self.job.case.name}: failed with status {status}\n{said}")
        return Account.read(self.folder / _ACCOUNT)


@contextmanager
def _started(job: Job, cores: frozenset[int]) -> Iterator[_Run]:
    """Yield a run; what is left of it in the end is killed."""
    with tempfile.TemporaryDirectory(prefix="voxload-bench-") as name:
        folder = Path(name)
        job.write(folder / "job.json")
        command = [sys.executable, "-m", "bench.loading.worker", str(folder / "job.json"), str(folder / _ACCOUNT)]
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path}
        with (folder / "messages").open("wb+") as messages:
            # A session of its own, so that its workers can be ended with it.
            process = subprocess.Popen(
                command,
                cwd=_ROOT,
                env=environment,
                stdout=messages,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            os.sched_setaffinity(process.pid, cores)  # before it has a thread or a child, which have its cores too
            try:
                yield _Run(job, process, folder, messages)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait()
