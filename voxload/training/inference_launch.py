"""launch_inference: a run of predictions on this machine, as processes of torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from voxload.errors import DataError, InternalError, UsageError, VoxloadError
from voxload.grid import ProcessGrid
from voxload.training.inference_plan import InferencePlan
from voxload.training.inference_result import InferenceResult
from voxload.training.inference_store import remove_leftovers
from voxload.training.launch import _environment, _stop

Hear = Callable[[dict[str, Any]], None]
"""Hears of events that tell how far a run is."""


def launch_inference(plan: InferencePlan, *, processes: int, hear: Hear) -> InferenceResult:
    """Run `plan` on as many local processes and return its result; the processes end when this call ends.

    Raises
    ------
    UsageError
        Before anything is started when the grid does not fit the processes; later what the ranks found wrong.
    DataError
        Whatever was wrong with data or storage.
    InternalError
        When a process dies without an error of its own; the message ends with the last line it wrote.
    """
    ProcessGrid(spatial=plan.spatial, world_size=processes, rank=0)
    try:
        return _launched(plan, processes, hear)
    except BaseException:
        remove_leftovers(Path(plan.output))  # the ranks have ended, and had no time to do so
        raise


def _launched(plan: InferencePlan, processes: int, hear: Hear) -> InferenceResult:
    with tempfile.TemporaryDirectory(prefix="voxload-infer-") as folder:
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
                result = _follow(process.stdout or (), hear)
                status = process.wait()
            finally:
                _stop(process)
        if isinstance(result, VoxloadError):
            raise result
        if status or result is None:
            lines = log_path.read_text(encoding="utf-8").strip().splitlines()
            last = lines[-1].strip() if lines else "nothing written"
            raise InternalError("inference", found=f"a process that died: {last}", remedy="see its memory and signals")
    return result


def _command(plan: Path, processes: int) -> list[str]:
    runner = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [*runner, "-m", "voxload.training.inference_worker", os.fspath(plan)]


def _follow(lines: Iterable[str], hear: Hear) -> InferenceResult | VoxloadError | None:
    """Pass the ranks' events and warnings on until their output ends; return the result or the first error."""
    first: VoxloadError | None = None
    result: InferenceResult | None = None
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # not one of ours: a library's own words
        kind = event.pop("event", None) if isinstance(event, dict) else None
        if kind in {"begin", "predicted"}:
            hear({"event": kind, **event})
        elif kind == "warning":
            warnings.warn(event["message"], RuntimeWarning, stacklevel=4)
        elif kind == "error" and first is None:
            first = (UsageError if event["is_usage"] else DataError)(event["message"])
        elif kind == "result":
            result = InferenceResult.from_dict(event)
    return first or result
