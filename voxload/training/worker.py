"""One rank of a training run: ``python -m voxload.training.worker PLAN``, under torchrun, srun or mpiexec.

Rank 0 writes one line of JSON per checkpoint and per epoch to standard output, once the checkpoint lies in the plan's
output folder, and at the end the result and the weights into that folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from voxload.atomic import replacing
from voxload.devices import check_own, rank_device
from voxload.grid import ProcessGrid, launched_as
from voxload.joining import joined
from voxload.rankmain import emit, run_rank
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult
from voxload.training.run import Run

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""How long a rank waits for the others in a collective before it gives up."""
WEIGHTS = "model.pt"
"""File name of the trained weights in the output folder."""


def train(text: str) -> TrainingResult | None:
    """Train as one rank of the job, by a plan as TrainingPlan.to_json writes it; rank 0 returns the result."""
    return train_rank(TrainingPlan.from_json(text), emit)


def train_rank(plan: TrainingPlan, hear: Callable[[dict[str, Any]], None]) -> TrainingResult | None:
    """Train as the rank of the job that the launcher made of this process; rank 0 returns the result and is heard.

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
        with closing(Run(plan, grid, device=device)) as run:
            is_first = rank == 0
            result = run.execute(hear if is_first else _hush)
            if not is_first:
                return None
            Path(plan.output).mkdir(parents=True, exist_ok=True)
            with replacing(plan.report_path) as path:
                path.write_text(result.to_json(), encoding="utf-8")
            with replacing(Path(plan.output) / WEIGHTS) as path:
                torch.save(run.weights(), path)
            return result


def _hush(event: dict[str, Any]) -> None:
    """Say nothing: one rank speaks for all."""


if __name__ == "__main__":
    sys.exit(run_rank("voxload.training.worker", sys.argv[1:], train))
