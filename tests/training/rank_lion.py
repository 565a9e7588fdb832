"""One of two ranks of the test of Lion in a run: ``rank_lion CUBES FOLDER``. Rank 0 writes what was found as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.training.stops import REGRESSION, figures, regression, stopped, train
from voxload.training.plan import LION, Optimisation

LION_RECIPE = replace(REGRESSION, batch_size=2, dropout=0.3, dtype="float32", optimizer=LION, learning_rate=1e-4)


def ends(cubes: str, folder: Path, recipe: Optimisation) -> dict[str, Any]:
    """Train two groups; stop inside an epoch, and go on; return the losses, and whether both end with the same bits."""
    plan = regression(cubes, folder / f"{recipe.lion_combine}-{recipe.lion_momentum}", optimisation=recipe)
    result, weights = train(plan, stops=[(0, 2)])
    again = replace(plan, output=str(stopped(Path(plan.output), (0, 2))), resume=True)
    other, others = train(again)
    same = all(torch.equal(values, others[name]) for name, values in weights.items())
    return {"same": same and figures(result) == figures(other), "figures": figures(result)}


def main(cubes: str, folder: Path) -> None:
    """Train with gradients that are averaged, and with votes, with momentum that is averaged and that is not."""
    dist.init_process_group("gloo")
    recipes = {
        "exact": replace(LION_RECIPE, lion_combine="exact"),
        "majority": LION_RECIPE,
        "p-bit": replace(LION_RECIPE, lion_combine="p-bit", lion_bits=8, lion_momentum=2),
    }
    found = {name: ends(cubes, folder, recipe) for name, recipe in recipes.items()}
    if dist.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
