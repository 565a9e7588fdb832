"""One rank of the test of pipelines: stages that are split, and several pipelines side by side.

Run as ``rank_pipeline.py RANK RANKS FOLDER``. What each found is written to ``FOLDER/report-RANK.json``.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests.engine.rank_start import meet, refused
from voxload.engine import pipeline_parts, pipeline_stage
from voxload.grid import ProcessGrid

SHAPE = (8, 8, 8)
SAMPLES, MICROBATCHES = 2, 3


def parts(*, late: bool = False) -> list[nn.Module]:
    """Return the same two parts every time; the second takes a volume, or what is whole by then."""
    torch.manual_seed(3)
    body = [nn.Conv3d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.MaxPool3d(2)]
    middle = [nn.Conv3d(4, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()]
    head = [nn.Dropout(0.0), nn.Linear(6, 3)]
    cut = [[*body, *middle], head] if late else [body, [*middle, *head]]
    return [nn.Sequential(*each).double() for each in cut]


class Skips(nn.Module):
    """A network whose last layers take what its first ones give."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(2, 4, 3, padding=1), nn.Conv3d(4, 4, 3, padding=1)
        self.third, self.fourth = nn.Conv3d(4, 4, 3, padding=1), nn.Conv3d(8, 6, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 3)."""
        y = functional.silu(self.first(x))
        z = self.third(functional.silu(self.second(y)))
        numbers: Tensor = self.head(self.fourth(torch.cat([z, y], 1)).mean((2, 3, 4)))
        return numbers


def skips() -> list[nn.Module]:
    """Return such a network in four parts, two of which hand on what they do not use."""
    torch.manual_seed(3)
    cuts = ["silu", "silu_1", "third"]
    return pipeline_parts(Skips().double(), cuts, shape=SHAPE, channels=2)


def samples(pipeline: int) -> tuple[Tensor, Tensor]:
    """Return the batch of a pipeline."""
    drawn = torch.Generator().manual_seed(10 + pipeline)
    count = SAMPLES * MICROBATCHES
    x = torch.randn(count, 2, *SHAPE, dtype=torch.float64, generator=drawn)
    return x, torch.randn(count, 3, dtype=torch.float64, generator=drawn)


def wanted(given: list[nn.Module], pipelines: int) -> tuple[list[dict[str, Tensor]], float]:
    """Return the gradients of every part, of the mean of all pipelines' losses, and the first one's loss."""
    first = 0.0
    for pipeline in range(pipelines):
        x, target = samples(pipeline)
        values: tuple[Tensor, ...] = (x,)
        for part in given:
            result = part(*values)
            values = result if isinstance(result, tuple) else (result,)
        loss = functional.mse_loss(values[0], target)
        first = first or float(loss.detach())
        (loss / pipelines).backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    return [
        {name: each.grad for name, each in part.named_parameters() if each.grad is not None} for part in given
    ], first


def difference(stage: Any, grads: list[dict[str, Tensor]]) -> float:
    """Return the largest difference of this rank's gradients; infinity where any is missing."""
    found = dict(stage.submod.named_parameters())
    others = grads[stage.stage_index]
    pairs = [
        (next(each for other, each in found.items() if other.endswith(name)), grad) for name, grad in others.items()
    ]
    return max(float("inf") if each.grad is None else float((each.grad - grad).abs().max()) for each, grad in pairs)


def run(
    grid: ProcessGrid, schedule: Any, given: list[nn.Module], *, microbatches: int = MICROBATCHES
) -> dict[str, float]:
    """Run one step of a pipeline, and return how far it is from one process."""
    pipeline = grid.group // len(given)
    grads, loss = wanted(copy.deepcopy(given), grid.groups // len(given))

    def average(network: nn.Module, group: Any) -> nn.Module:
        return DistributedDataParallel(network, process_group=group)

    size = SAMPLES * MICROBATCHES // microbatches
    stage = pipeline_stage(
        given, grid, SHAPE, channels=2, samples=size, device=torch.device("cpu"), wrap=average, min_width=0
    )
    x, target = samples(pipeline)
    own: Any = (..., *grid.block(SHAPE).slices)
    losses: list[Tensor] = []
    runner = schedule(stage, microbatches, loss_fn=functional.mse_loss)
    if stage.is_first:
        runner.step(x[own])
    else:
        runner.step(target=target, losses=losses)
    report = {"gradients": difference(stage, grads)}
    if losses and pipeline == 0:
        report["loss"] = abs(float(torch.stack(losses).mean().detach()) - loss)
    return report


def main(rank: int, ranks: int, folder: Path) -> None:
    """Check everything on one rank."""
    meet(rank, ranks, folder)
    split, apart = ProcessGrid((1, 1, 2), ranks, rank), ProcessGrid((1, 1, 1), ranks, rank)
    report: dict[str, Any] = {
        "split": run(split, ScheduleGPipe, parts()),
        "late": run(split, ScheduleGPipe, parts(late=True)),
        "side by side": run(apart, Schedule1F1B, parts()),
        "skips": run(apart, Schedule1F1B, skips(), microbatches=SAMPLES * MICROBATCHES),
    }
    about: dict[str, Any] = {"channels": 2, "samples": 1, "device": torch.device("cpu")}
    three = [nn.Identity()] * 3
    synced = [nn.Sequential(nn.Conv3d(2, 4, 3), nn.SyncBatchNorm(4)), nn.Conv3d(4, 1, 3)]
    report["refused"] = [
        refused(lambda: pipeline_stage(three, split, SHAPE, **about)),
        refused(lambda: pipeline_stage(synced, split, SHAPE, **about)),
        refused(lambda: pipeline_stage(skips()[1:3], split, SHAPE, **about | {"channels": 4})),
    ]
    (folder / f"report-{rank}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
