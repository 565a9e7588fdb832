"""launch: a training run on this machine, as processes of torchrun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from voxload.devices import check_there
from voxload.grid import ProcessGrid
from voxload.launching import launch_ranks
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult


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
