"""Launch: one run in a process of its own, on so many cores, within a time limit, its memory watched."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.loading.job import Account, Job
from bench.loading.memory import MemoryWatch
from bench.loading.worker import LIMIT

_ROOT = Path(__file__).resolve().parents[2]
_GRACE = 20.0
"""Seconds for a run to end by itself."""
_SHOWN = 4000
"""Characters of a failed run's messages that are shown."""


def launch(job: Job, *, cores: frozenset[int]) -> tuple[Account, int]:
    """Run a job on some cores; return what it saw, and the most bytes that it held.

    Raises
    ------
    RuntimeError
        It failed, or took too long; nothing of it is left running.
    """
    with tempfile.TemporaryDirectory(prefix="voxload-bench-") as name:
        folder = Path(name)
        job.write(folder / "job.json")
        command = [sys.executable, "-m", "bench.loading.worker", str(folder / "job.json"), str(folder / "account.json")]
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
            watch = MemoryWatch(process.pid)
            try:
                status = process.wait(LIMIT + _GRACE)
            finally:
                peak = watch.stop()
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait()
            if status:
                said = os.pread(messages.fileno(), 1 << 20, 0).decode(errors="replace")[-_SHOWN:]
                raise RuntimeError(f"{job.contender}, {job.case.name}: failed with status {status}\n{said}")
        return Account.read(folder / "account.json"), peak
