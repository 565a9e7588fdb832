"""Plans as options: what ``--plan FILE`` of other commands says in the place of theirs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from voxload.errors import UsageError
from voxload.grid import is_launched, launched_as
from voxload.plan import load
from voxload.plan.forecast.training import NETWORKS


@dataclass(frozen=True, slots=True)
class TrainingChoice:
    """What a plan decides of a training run."""

    model: str
    variant: str
    spatial: tuple[int, int, int]
    batch_size: int
    processes: int
    """To be started here; 1 under a launcher."""
    layers: dict[str, str]


def training_choice(path: Path, processes: int) -> TrainingChoice:
    """Return what a plan says of ``voxload train``.

    Parameters
    ----------
    path
        Of the plan.
    processes
        That were asked for; 1 for those of the plan.

    Raises
    ------
    UsageError
        When the plan is of what ``voxload train`` does not do, or of another number of ranks than there are.
    """
    plan = load(path)
    if plan.model not in NETWORKS:
        raise UsageError(
            "--plan",
            found=f"a plan of {plan.model}",
            expected=f"one of {', '.join(NETWORKS)}",
            remedy="train it in a script of your own: shard(model, plan.grid(rank), plan=plan.split)",
        )
    if (plan.optimizer, plan.dtype) != ("adam", "float32"):
        raise UsageError(
            "--plan",
            found=f"a plan for {plan.optimizer} in {plan.dtype}",
            expected="adam in float32, which voxload train uses",
            remedy="plan with --optimizer adam and without --amp",
        )
    base, _, variant = plan.model.partition("-")
    launched = is_launched(os.environ)
    ranks = launched_as(os.environ)[1] if launched else processes
    if ranks != plan.ranks and (launched or processes > 1):
        raise UsageError(
            "--plan",
            found=f"{ranks} ranks",
            expected=f"{plan.ranks}, as the plan has",
            remedy=f"start {plan.ranks}, or plan with --ranks {ranks}",
        )
    return TrainingChoice(base, variant, plan.spatial, plan.samples, 1 if launched else plan.ranks, dict(plan.layers))
