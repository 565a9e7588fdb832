"""One rank of a run of predictions: ``python -m voxload.training.inference_worker PLAN``, under any launcher.

The first rank of each sample group writes a line of JSON per batch to standard output, and rank 0 one at the beginning
and one with the result, once all files are in place; a rank that fails writes a line with its error, and one that warns
with its warning.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from voxload.errors import UsageError, VoxloadError
from voxload.grid import ProcessGrid
from voxload.training.inference import Inference
from voxload.training.inference_plan import InferencePlan
from voxload.training.worker import emit

COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""How long a rank waits for all others: sample groups meet at the end only, and one may have a batch more to do."""


def main(arguments: Sequence[str]) -> int:
    """Run one rank and return its exit status: 0, 1 when the work failed, 2 when the plan was wrong."""
    if len(arguments) != 1:
        sys.stderr.write("voxload.training.inference_worker: expected one argument, the path of a plan\n")
        return 2
    show = warnings.showwarning

    def tell(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, RuntimeWarning):  # of a run that goes on; other kinds are for those who write code
            emit({"event": "warning", "message": str(message)})
        else:
            show(message, category, *where, **more)

    warnings.showwarning = tell
    try:
        infer(InferencePlan.from_json(Path(arguments[0]).read_text(encoding="utf-8")))
    except VoxloadError as error:
        emit({"event": "error", "is_usage": isinstance(error, UsageError), "message": str(error)})
        return 2 if isinstance(error, UsageError) else 1
    return 0


def infer(plan: InferencePlan) -> None:
    """Predict as one rank of the job."""
    grid = ProcessGrid.from_env(plan.spatial)
    if grid.world_size > 1:
        dist.init_process_group("gloo", timeout=COLLECTIVE_TIMEOUT)
    try:
        with closing(Inference(plan, grid)) as run:
            result = run.execute(emit)
        if grid.rank == 0:
            emit({"event": "result", **result.to_dict()})
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
