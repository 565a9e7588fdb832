"""One rank of a training run: ``python -m voxload.training.worker PLAN``, under torchrun, srun or mpiexec.

Rank 0 writes one line of JSON per checkpoint and per epoch to standard output, once the checkpoint lies in the plan's
output folder, and at the end the result and the weights into that folder; a rank that fails writes one line of JSON
with its error, and one that warns with its warning.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from voxload.atomic import replacing
from voxload.errors import UsageError, VoxloadError
from voxload.grid import ProcessGrid
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult
from voxload.training.run import Run

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""How long a rank waits for the others in a collective before it gives up."""
WEIGHTS = "model.pt"
"""File name of the trained weights in the output folder."""


def main(arguments: Sequence[str]) -> int:
    """Run one rank and return its exit status: 0, 1 when the work failed, 2 when the plan was wrong."""
    if len(arguments) != 1:
        sys.stderr.write("voxload.training.worker: expected one argument, the path of a plan\n")
        return 2
    show = warnings.showwarning

    def tell(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, RuntimeWarning):  # of a run that goes on; other kinds are for those who write code
            emit({"event": "warning", "message": str(message)})
        else:
            show(message, category, *where, **more)

    warnings.showwarning = tell
    try:
        train(TrainingPlan.from_json(Path(arguments[0]).read_text(encoding="utf-8")))
    except VoxloadError as error:
        emit({"event": "error", "is_usage": isinstance(error, UsageError), "message": str(error)})
        return 2 if isinstance(error, UsageError) else 1
    return 0


def emit(event: dict[str, Any]) -> None:
    """Write one event as a line of JSON to standard output, at once."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def train(plan: TrainingPlan) -> TrainingResult | None:
    """Train as one rank of the job; rank 0 returns the result and writes it."""
    grid = ProcessGrid.from_env(plan.spatial)
    if grid.world_size > 1:
        dist.init_process_group("gloo", timeout=COLLECTIVE_TIMEOUT)
    try:
        with closing(Run(plan, grid)) as run:
            is_first = grid.rank == 0
            result = run.execute(emit if is_first else _hush)
            if not is_first:
                return None
            Path(plan.output).mkdir(parents=True, exist_ok=True)
            with replacing(plan.report_path) as path:
                path.write_text(result.to_json(), encoding="utf-8")
            with replacing(Path(plan.output) / WEIGHTS) as path:
                torch.save(run.weights(), path)
            return result
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _hush(event: dict[str, Any]) -> None:
    """Say nothing: one rank speaks for all."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
