"""One rank of a run of predictions: ``python -m voxload.inference.worker PLAN``, under any launcher.

The first rank of each sample group writes a line of JSON per batch to standard output, and rank 0 one at the beginning
and one with the result, once all files are in place.
"""

from __future__ import annotations

import sys
from contextlib import closing
from datetime import timedelta

import torch.distributed as dist

from voxload.grid import ProcessGrid
from voxload.inference.plan import InferencePlan
from voxload.inference.run import Inference
from voxload.rankmain import emit, run_rank

COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""How long a rank waits for all others: sample groups meet at the end only, and one may have a batch more to do."""


def infer(text: str) -> None:
    """Predict as one rank of the job, by a plan as InferencePlan.to_json writes it."""
    plan = InferencePlan.from_json(text)
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
    sys.exit(run_rank("voxload.inference.worker", sys.argv[1:], infer))
