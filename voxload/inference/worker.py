"""One rank of a run of predictions: ``python -m voxload.inference.worker PLAN``, under any launcher.

The first rank of each sample group writes a line of JSON per batch to standard output, and rank 0 one at the beginning
and one with the result, once all files are in place.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from datetime import timedelta

from voxload.devices import check_own, rank_device
from voxload.grid import ProcessGrid, launched_as
from voxload.inference.plan import InferencePlan
from voxload.inference.result import InferenceResult
from voxload.inference.run import Inference, Tell
from voxload.joining import joined
from voxload.rankmain import emit, run_rank

COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""How long a rank waits for all others: sample groups meet at the end only, and one may have a batch more to do."""


def infer(text: str) -> None:
    """Predict as one rank of the job, by a plan as InferencePlan.to_json writes it."""
    result = infer_rank(InferencePlan.from_json(text), emit)
    if result is not None:
        emit({"event": "result", **result.to_dict()})


def infer_rank(plan: InferencePlan, hear: Tell) -> InferenceResult | None:
    """Predict as the rank of the job that the launcher made of this process; rank 0 returns the result.

    Raises
    ------
    UsageError
        When ranks, plan and data do not fit each other.
    """
    rank, world_size = launched_as(os.environ)
    grid = ProcessGrid(spatial=plan.spatial, world_size=world_size, rank=rank)
    device = rank_device(plan.device)
    with joined(rank, world_size, timeout=COLLECTIVE_TIMEOUT, kind=device.type):
        check_own(device)
        with closing(Inference(plan, grid, device=device)) as run:
            result = run.execute(hear)
    return result if rank == 0 else None


if __name__ == "__main__":
    sys.exit(run_rank("voxload.inference.worker", sys.argv[1:], infer))
