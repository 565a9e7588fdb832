"""Resuming: whether a run may go on from a checkpoint, and what will differ; pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from voxload.errors import UsageError
from voxload.training.plan import TrainingPlan

_FREE = frozenset(
    {
        "catalog",
        "output",
        "spatial",
        "cache",
        "clairvoyant",
        "prometheus",
        "tensorboard",
        "checkpoint_every",
        "device",
        "recompute",
        "resume",
        "batch_size",
        "allow_outside",
    }
)
"""Settings that may change: the numbers stay the same. Data and samples of a step are compared by themselves."""


@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """How the samples of a step are dealt out."""

    groups: int
    """Sample groups."""
    batch_size: int
    """Samples of each in a step."""

    @property
    def samples(self) -> int:
        """Samples of a step, over all groups."""
        return self.groups * self.batch_size


def check_same_plan(saved: TrainingPlan, now: TrainingPlan) -> None:
    """Raise UsageError that names the first setting that would change the result of the run.

    More epochs prolong it: those that are behind stay what they were; see `prolonged`.
    """
    before, after = _settings(saved), _settings(now)
    if after["epochs"] < before["epochs"]:
        raise UsageError(
            "--resume with fewer epochs",
            found=f"{after['epochs']}",
            expected=f"{before['epochs']}, as in the checkpoint, or more to prolong the run",
            remedy="the step size fell over that many: start a new run without --resume",
        )
    del before["epochs"], after["epochs"]
    for name, value in after.items():
        if value != before[name]:
            raise UsageError(
                f"--resume with another {name.replace('_', '-')}",
                found=repr(value),
                expected=f"{before[name]!r}, as in the checkpoint",
                remedy="give it as before, or start a new run without --resume",
            )


def prolonged(saved: TrainingPlan, now: TrainingPlan) -> str:
    """Return what a run of more epochs than were planned differs in from one that was planned so; empty for none."""
    before, after = saved.optimisation.epochs, now.optimisation.epochs
    if after == before:
        return ""
    return (
        f"{after} epochs, where {before} were planned: the step size falls over {after} from here on, and fell over "
        f"{before} until now"
    )


def check_same_samples(saved: GlobalBatch, now: GlobalBatch) -> None:
    """Raise UsageError when a step would be of another number of samples, over all groups, than it was."""
    if now.samples != saved.samples:
        raise UsageError(
            "--resume with other steps",
            found=f"{now.groups} sample groups of {now.batch_size}: {now.samples} samples",
            expected=f"{saved.samples}, as in the checkpoint",
            remedy=f"choose --batch-size, --nproc and --spatial such that groups times batch size is {saved.samples}",
        )


def small_differences(
    saved: GlobalBatch, now: GlobalBatch, *, samples: int, is_normalised: bool, is_voted: bool = False
) -> tuple[str, ...]:
    """Return what makes a run on other groups differ from the one that was stopped by more than rounding.

    Parameters
    ----------
    saved, now
        How steps were, and are, dealt out; of as many samples each.
    samples
        Samples that are trained on.
    is_normalised
        Whether the network normalises over the samples of a batch.
    is_voted
        Whether sample groups combine their updates.
    """
    found = []
    repeated, before = -samples % now.groups, -samples % saved.groups
    if repeated != before:
        found.append(f"{repeated} of {samples} samples come twice in an epoch of {now.groups} groups, not {before}")
    if is_normalised and now.batch_size != saved.batch_size:
        found.append(f"normalisation is over the {now.batch_size} samples of a group, not {saved.batch_size}")
    if is_voted and now.groups != saved.groups:
        found.append(f"{now.groups} groups combine their updates, not {saved.groups}, from the mean of their momentum")
    return tuple(found)


def check_same_data(found: str, expected: str) -> None:
    """Raise UsageError when the digest of the samples is another one than it was."""
    if found != expected:
        raise UsageError(
            "--resume with other data",
            found=f"samples or targets of digest {found[:12]}",
            expected=f"{expected[:12]}, as in the checkpoint",
            remedy="name the catalogue that the run was started on, or start a new run without --resume",
        )


def _settings(plan: TrainingPlan) -> dict[str, Any]:
    """Return what decides the result of a run, by name."""
    values = {each.name: getattr(plan, each.name) for each in dataclasses.fields(plan)}
    recipe = values.pop("optimisation")
    values |= {each.name: getattr(recipe, each.name) for each in dataclasses.fields(recipe)}
    return {name: value for name, value in values.items() if name not in _FREE}
