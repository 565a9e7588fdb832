"""Slurm's srun and scontrol as far as job scripts of one machine need them: each task is a process here.

    python localslurm.py srun [--ntasks=N] [OPTIONS] COMMAND...
    python localslurm.py scontrol show hostnames NODES
    python localslurm.py scontrol requeue JOB

Tasks find Slurm's variables, each on a node of its own. TERM is passed on, and when a task fails the others end, as
with --kill-on-bad-exit. A job that is queued again is noted in the file that LOCALSLURM_REQUEUED names. Tests with a
Slurm of their own are in tests/deploy/test_cluster.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PAUSE = 0.05


def commands(folder: Path) -> Path:
    """Write both commands into a folder, and return it."""
    folder.mkdir()
    for name in ("srun", "scontrol"):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return folder


def srun(words: Sequence[str]) -> int:
    """Run the tasks and return the first status that is not 0, as a shell has it; else 0."""
    command, tasks = list(words), int(os.environ["SLURM_NTASKS"])
    while command and command[0].startswith("--"):
        name, _, value = command.pop(0).partition("=")
        if name == "--ntasks":
            tasks = int(value)
    running = [subprocess.Popen(command, env=os.environ | _variables(place, tasks)) for place in range(tasks)]

    def end(*_: Any) -> None:
        for process in running:
            process.terminate()

    signal.signal(signal.SIGTERM, end)
    while any(process.poll() is None for process in running):
        if any(process.returncode for process in running):
            end()
        time.sleep(_PAUSE)
    failed = [process.returncode for process in running if process.returncode]
    return 0 if not failed else failed[0] if failed[0] > 0 else 128 - failed[0]


def _variables(place: int, tasks: int) -> dict[str, str]:
    names = {"SLURM_PROCID": place, "SLURM_NODEID": place, "SLURM_LOCALID": 0, "SLURM_STEP_NUM_TASKS": tasks}
    return {name: str(value) for name, value in names.items()}


def scontrol(words: Sequence[str]) -> int:
    """Say what a list of nodes stands for, or note a job that is queued again."""
    match words:
        case ["show", "hostnames", nodes]:
            sys.stdout.write(nodes.replace(",", "\n") + "\n")
        case ["requeue", job]:
            with Path(os.environ["LOCALSLURM_REQUEUED"]).open("a", encoding="utf-8") as file:
                file.write(f"{job}\n")
        case _:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit({"srun": srun, "scontrol": scontrol}[sys.argv[1]](sys.argv[2:]))
