"""Plans as options: what ``--plan FILE`` of other commands says in the place of theirs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voxload.catalog.table import Catalog
from voxload.errors import UsageError
from voxload.grid import is_launched, launched_as
from voxload.plan import load
from voxload.plan.forecast.reading import DataSet
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
    recompute: tuple[str, ...]
    """Paths of modules that run again in the backward pass."""
    sample: tuple[int, int, int, int]
    """Channels and extents (C, D, H, W) that it is for."""
    cache: int
    """Bytes of each node's memory that blocks are kept in; 0 for none."""

    def check_sample(
        self, catalog: Catalog, names: Sequence[str], patch: Sequence[int], *, allow_outside: bool
    ) -> None:
        """Raise UsageError where what is trained on has other channels or extents than the plan.

        Parameters
        ----------
        catalog
            Of the samples.
        names
            Of the data sets that may be trained on; of several, nothing is looked at.
        patch
            Extents of patches; nothing where samples are whole.
        allow_outside
            Whether the catalogue's paths may lead out of its folder.
        """
        if len(names) != 1:
            return
        found = DataSet.of(catalog, names[0], allow_outside=allow_outside).shape
        found = (*found[:1], *(patch or found[1:]))
        if found != self.sample:
            raise UsageError(
                "--plan",
                found=f"a plan for {self.sample}",
                expected=f"one for {found}, as what is trained on",
                remedy=f"plan again with --sample {','.join(map(str, found))}",
            )


def refuse_beside_plan(*options: tuple[str, object, object]) -> None:
    """Raise UsageError for an option that a plan decides, given as (name, value, default), with another value."""
    for name, value, usual in options:
        if value != usual:
            raise UsageError(name, found=f"{value} beside --plan", expected="one of the two")


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
    if plan.stages > 1:
        raise UsageError(
            "--plan",
            found=f"a pipeline of {plan.stages} stages",
            expected="a plan without stages",
            remedy="train it in a script of your own, with voxload.engine.pipeline_stage, or plan without --stages",
        )
    if (plan.optimizer, plan.dtype, plan.wrapper) != ("adam", "float32", "ddp"):
        raise UsageError(
            "--plan",
            found=f"a plan for {plan.optimizer} in {plan.dtype} under {plan.wrapper}",
            expected="adam in float32 under ddp, which voxload train uses",
            remedy="plan with --optimizer adam, and without --amp and --wrapper",
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
    processes = 1 if launched else plan.ranks
    return TrainingChoice(
        base, variant, plan.spatial, plan.samples, processes, dict(plan.layers), plan.recompute, plan.sample, plan.cache
    )
