"""One of four ranks of the tests of resuming: ``rank_resume CUBES LABELLED FOLDER`` under torchrun.

FOLDER has ``one-0-2``, where a run of one process was stopped. Rank 0 writes the figures of each run as JSON into it,
and the weights at their ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from tests.training.stops import REGRESSION, SEGMENTATION, figures, regression, segmentation, stopped, train
from voxload.training.plan import TrainingPlan

Learnt = Callable[[str, TrainingPlan], None]


def goes_on_as_it_was(cubes: str, folder: Path) -> bool:
    """Tell whether two groups of two ranks, stopped inside an epoch, end with the same bits, dropout included."""
    recipe = replace(REGRESSION, batch_size=2, dropout=0.3, dtype="float32")
    plan = regression(cubes, folder / "same", spatial=(2, 1, 1), optimisation=recipe)
    result, weights = train(plan, stops=[(0, 2)])
    again = replace(plan, output=str(stopped(folder / "same", (0, 2))), resume=True)
    other, others = train(again)
    is_equal = all(torch.equal(values, others[name]) for name, values in weights.items())
    return is_equal and figures(result) == figures(other)


def main(cubes: str, labelled: str, folder: Path) -> None:
    """Train on three grids what one process began, then a U-Net on two groups."""
    dist.init_process_group("gloo")
    learnt = {}
    block = replace(regression(cubes, folder / "one-0-2"), spatial=(2, 2, 1), resume=True)
    last = stopped(Path(block.output), (1, 1))
    halves = replace(block, output=str(last), spatial=(2, 1, 1), optimisation=replace(REGRESSION, batch_size=2))
    unet = segmentation(labelled, folder / "unet", spatial=(2, 1, 1), optimisation=replace(SEGMENTATION, batch_size=2))
    for name, plan in {"one block of four": block, "two halves twice": halves, "unet": unet}.items():
        result, weights = train(plan, stops=[(1, 1)])
        learnt[name] = figures(result)
        if dist.get_rank() == 0:
            torch.save(weights, folder / f"{name}.pt")
    learnt["same bits"] = [[float(goes_on_as_it_was(cubes, folder))]]
    if dist.get_rank() == 0:
        (folder / "learnt.json").write_text(json.dumps(learnt), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
