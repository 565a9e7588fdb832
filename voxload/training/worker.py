"""Ranks of a training run, started here or by a launcher: ``python -m voxload.training.worker PLAN``.

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

from voxload.files.atomic import replacing
from voxload.grid import ProcessGrid, launched_as
from voxload.launch.devices import check_own, check_there, rank_device
from voxload.launch.processes import emit, launch_ranks, run_rank
from voxload.launch.rendezvous import process_group
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult
from voxload.training.run import Run


def launch(plan: TrainingPlan, *, processes: int, on_epoch: Callable[[dict[str, Any]], None]) -> TrainingResult:
    """Run `plan` on as many local processes and return its result.

    The processes end when this call ends, by return or by exception.

    Raises
    ------
    UsageError
        Before anything is started when the grid does not fit the processes, or there are too few GPUs; later
        what the ranks found wrong.
    DataError
        Whatever was wrong with the data.
    InternalError
        When a process dies without an error of its own; the message ends with the last line it wrote.
    """
    ProcessGrid(spatial=plan.spatial, world_size=processes, rank=0)
    check_there(plan.device, ranks=processes)

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            on_epoch(event)

    launch_ranks("voxload.training.worker", plan.to_json(), processes=processes, subject="training", hear=hear)
    return TrainingResult.from_json(plan.report_path.read_text(encoding="utf-8"))


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
    with process_group(rank, world_size, timeout=COLLECTIVE_TIMEOUT, kind=device.type):
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
