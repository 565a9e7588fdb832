"""Runs of training in this process that leave copies of their checkpoints: what a run that was stopped would find."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support.ranks import printed_by_ranks
from voxload.grid import ProcessGrid
from voxload.training.checkpoint import CHECKPOINT
from voxload.training.plan import Optimisation, TrainingPlan
from voxload.training.result import TrainingResult
from voxload.training.run import Run

Place = tuple[int, int]
"""Epochs and steps behind a checkpoint."""
REGRESSION = Optimisation(epochs=2, batch_size=4, dropout=0.0, dtype="float64")
SEGMENTATION = Optimisation(epochs=2, batch_size=4, learning_rate=1e-2, dropout=0.0, dtype="float64")


@contextmanager
def single_threaded() -> Iterator[None]:
    """Let torch compute on one core: on small cubes the second one mostly waits, and does so busily."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def regression(catalog: str, output: Path, **changes: Any) -> TrainingPlan:
    """Return the plan of three steps an epoch, in one process; each leaves a checkpoint."""
    plan = TrainingPlan(catalog, str(output), validation=0.25, optimisation=REGRESSION, checkpoint_every=1)
    return replace(plan, **changes)


def segmentation(catalog: str, output: Path, **changes: Any) -> TrainingPlan:
    """Return the same with the smallest of U-Nets, for the labelled samples."""
    plan = regression(catalog, output, model="unet3d", labels="labels", classes=3, widths=(4, 8, 8))
    return replace(plan, **{"optimisation": SEGMENTATION, **changes})


def train_on_ranks(plan: TrainingPlan, ranks: int) -> tuple[TrainingResult, list[dict[str, Any]]]:
    """Train on ranks of their own, as `voxload.training.worker` does, and return the result and what they told."""
    path = Path(plan.output).with_name(f"{Path(plan.output).name}-plan.json")
    path.write_text(plan.to_json(), encoding="utf-8")
    lines = printed_by_ranks("voxload.training.worker", path, ranks=ranks).splitlines()
    result = TrainingResult.from_json(plan.report_path.read_text(encoding="utf-8"))
    return result, [json.loads(line) for line in lines]


def train(plan: TrainingPlan, *, stops: Sequence[Place] = ()) -> tuple[TrainingResult, dict[str, torch.Tensor]]:
    """Train as this rank, and return the result and the weights; copies of checkpoints go beside the output."""

    def tell(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and (event["epochs"], event["steps"]) in stops:
            folder = stopped(Path(plan.output), (event["epochs"], event["steps"]))
            folder.mkdir()
            shutil.copy(Path(plan.output) / CHECKPOINT, folder)

    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    with closing(Run(plan, ProcessGrid(spatial=plan.spatial, world_size=size, rank=rank))) as run:
        result = run.execute(tell)
        if dist.is_initialized():
            dist.barrier()  # what rank 0 copied is there for all
        return result, run.weights()


def stopped(output: Path, place: Place) -> Path:
    """Return the folder of a run that was stopped there."""
    return output.with_name(f"{output.name}-{place[0]}-{place[1]}")


def figures(result: TrainingResult) -> list[list[float]]:
    """Return what was learnt in each epoch."""
    return [
        [epoch.training_loss, epoch.validation_loss, *epoch.validation_mae, *epoch.validation_dice]
        for epoch in result.epochs
    ]
