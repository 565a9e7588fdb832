"""launch: a training run on this machine, as processes of torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from voxload.errors import DataError, InternalError, UsageError, VoxloadError
from voxload.grid import ProcessGrid
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult

_STOP_SECONDS = 30
"""Time for torchrun to end its processes before they are killed: it gives them as much itself."""


def launch(plan: TrainingPlan, *, processes: int, on_epoch: Callable[[dict[str, Any]], None]) -> TrainingResult:
    """Run `plan` on as many local processes and return its result.

    The processes end when this call ends, by return or by exception.

    Raises
    ------
    UsageError
        Before anything is started when the grid does not fit the processes; later what the ranks found wrong.
    DataError
        Whatever was wrong with the data.
    InternalError
        When a process dies without an error of its own; the message ends with the last line it wrote.
    """
    ProcessGrid(spatial=plan.spatial, world_size=processes, rank=0)
    with tempfile.TemporaryDirectory(prefix="voxload-train-") as folder:
        written, log_path = Path(folder) / "plan.json", Path(folder) / "log"
        written.write_text(plan.to_json(), encoding="utf-8")
        with log_path.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                _command(written, processes),
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(processes),
                text=True,
                start_new_session=True,
            )
            try:
                error = _follow(process.stdout or (), on_epoch)
                status = process.wait()
            finally:
                _stop(process)
        if error is not None:
            raise error
        if status:
            lines = log_path.read_text(encoding="utf-8").strip().splitlines()
            last = lines[-1].strip() if lines else "nothing written"
            raise InternalError("training", found=f"a process that died: {last}", remedy="see its memory and signals")
    return TrainingResult.from_json(plan.report_path.read_text(encoding="utf-8"))


def _command(plan: Path, processes: int) -> list[str]:
    runner = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [*runner, "-m", "voxload.training.worker", os.fspath(plan)]


def _environment(processes: int) -> dict[str, str]:
    """Share the cores among the processes, unless the caller has decided."""
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    return {"OMP_NUM_THREADS": str(threads), **os.environ}


def _follow(lines: Iterable[str], on_epoch: Callable[[dict[str, Any]], None]) -> VoxloadError | None:
    """Pass the ranks' events and warnings on until their output ends; return the first error among them."""
    first: VoxloadError | None = None
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # not one of ours: a library's own words
        if not isinstance(event, dict):
            continue
        if event.get("event") == "epoch":
            on_epoch(event)
        elif event.get("event") == "warning":
            warnings.warn(event["message"], RuntimeWarning, stacklevel=3)
        elif event.get("event") == "error" and first is None:
            kind = UsageError if event["is_usage"] else DataError
            first = kind(event["message"])
    return first


def _stop(process: subprocess.Popen[str]) -> None:
    """End the processes that still run; torchrun passes the signal on to its own."""
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
