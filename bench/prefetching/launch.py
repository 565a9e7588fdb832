"""Launch: four ranks by torchrun, within a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.prefetching.job import Account, Job

RANKS = 4
_ROOT = Path(__file__).resolve().parents[2]
_GRACE = 40.0
"""Seconds for ranks to end by themselves, and for torchrun to end them: it waits 30 s before it kills."""
_SHOWN = 6000
"""Characters of a failed run's messages that are shown."""


def launch(job: Job, *, seconds: float) -> list[Account]:
    """Run a job in `RANKS` processes and return their accounts, by rank.

    Raises
    ------
    RuntimeError
        A rank failed, or they took longer than `seconds`; nothing of them is left running.
    """
    with tempfile.TemporaryDirectory(prefix="voxload-bench-") as name:
        folder = Path(name)
        replace(job, folder=name, limit=seconds).write(folder / "job.json")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        command += ["-m", "bench.prefetching.rank", str(folder / "job.json")]
        with (folder / "messages").open("wb+") as messages:
            _run(command, messages.fileno(), seconds, job.contender)
        return [Account.read(folder / f"{rank}.json") for rank in range(RANKS)]


def _run(command: list[str], messages: int, seconds: float, name: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=messages, stderr=subprocess.STDOUT) as process:
        try:
            status = process.wait(seconds + _GRACE)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{name}: not done after {seconds:.0f} s\n{_first(messages)}") from error
        finally:
            _stop(process)
    if status:
        raise RuntimeError(f"{name}: failed with status {status}\n{_first(messages)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End torchrun, if it runs, by the signal on which it ends its ranks: each of them has a session of its own."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()


def _first(messages: int) -> str:
    """Return where the messages begin: behind them, torchrun only repeats who failed."""
    return os.pread(messages, _SHOWN, 0).decode(errors="replace")
