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
from voxload.grid import ProcessGrid
from voxload.launch.devices import check_own, check_there, rank_device
from voxload.launch.processes import emit, launch_ranks, run_rank
from voxload.launch.rendezvous import process_group
from voxload.training.plan import TrainingPlan
from voxload.training.population.jobs import concluded
from voxload.training.population.seat import plan_of, seat_of, source_for
from voxload.training.result import WEIGHTS, TrainingResult
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
    seat = seat_of(plan.trainers, os.environ)
    own = plan_of(plan, seat.trainer)
    grid = ProcessGrid(spatial=plan.spatial, world_size=seat.world_size, rank=seat.rank)
    device = rank_device(plan.device)
    source = source_for(plan, seat)
    words = {"timeout": COLLECTIVE_TIMEOUT, "kind": device.type, "store": seat.store}
    with process_group(seat.rank, seat.world_size, **words):
        check_own(device)
        with closing(Run(own, grid, device=device, trainer=seat.trainer, meeting=seat.meeting, source=source)) as run:
            result = run.execute(hear if seat.rank == 0 else _hush)
            if seat.rank != 0:
                return None
            Path(own.output).mkdir(parents=True, exist_ok=True)
            with replacing(own.report_path) as path:
                path.write_text(result.to_json(), encoding="utf-8")
            with replacing(Path(own.output) / WEIGHTS) as path:
                torch.save(run.weights(), path)
            run.leave()
    if plan.trainers > 1 and seat.is_first and seat.store is not None:
        return concluded(plan, seat).write(plan.output)  # nobody else speaks for all
    return result


def _hush(event: dict[str, Any]) -> None:
    """Say nothing: one rank speaks for all."""


if __name__ == "__main__":
    sys.exit(run_rank("voxload.training.worker", sys.argv[1:], train))
