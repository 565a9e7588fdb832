"""Rounds: where the checkpoints behind the rounds of a tournament lie, and from which one a population goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from voxload.errors import NotFoundError, UsageError
from voxload.training.checkpoint import CHECKPOINT

_FOLDER = "rounds"
KEPT = 8
"""Rounds whose checkpoints are kept at most: others may be that far behind, and a run goes on where all have been."""


def folder_of(output: str, trainer: int) -> str:
    """Return a trainer's own folder in the population's."""
    return os.fspath(Path(output) / f"trainer-{trainer}")


def round_folder(output: str, number: int) -> Path:
    """Return where the checkpoint behind a round of one trainer lies; that of round 0 is of the beginning."""
    return Path(output) / _FOLDER / f"{number:06}"


def rounds_in(output: str) -> list[int]:
    """Return the rounds behind which a trainer has a checkpoint, in order."""
    found = Path(output, _FOLDER).glob(f"*/{CHECKPOINT}")
    return sorted(int(path.parent.name) for path in found if path.parent.name.isdecimal())


def forget_rounds(output: str, *, before: int) -> None:
    """Remove the checkpoints of a trainer that nobody can go on from any more."""
    known = rounds_in(output)
    for number in known:
        if number < before or number < known[-1] - KEPT + 1:
            shutil.rmtree(round_folder(output, number), ignore_errors=True)


def common_round(output: str, trainers: int) -> int:
    """Return the last round behind which all trainers of a population have a checkpoint.

    A trainer without a folder goes on from another's; see `source_of`.

    Raises
    ------
    NotFoundError
        When no trainer has any.
    UsageError
        When they have none in common.
    """
    known = {trainer: rounds_in(folder_of(output, trainer)) for trainer in range(trainers)}
    there = {trainer: rounds for trainer, rounds in known.items() if rounds}
    if not there:
        raise NotFoundError(
            f"checkpoints of {trainers} trainers in {output}",
            found="none",
            remedy="name the run's --output, or start without --resume",
        )
    common = set[int].intersection(*(set(rounds) for rounds in there.values()))
    if not common:
        told = "; ".join(f"trainer {trainer} from {rounds[0]} to {rounds[-1]}" for trainer, rounds in there.items())
        late = min(there, key=lambda trainer: there[trainer][-1])
        raise UsageError(
            "--resume of a population",
            found=f"checkpoints of no round that all have: {told}",
            expected="one in common",
            remedy=f"remove {folder_of(output, late)}: that trainer then goes on with another's model",
        )
    return max(common)


def source_of(output: str, trainer: int, trainers: int, number: int) -> Path:
    """Return the folder of the checkpoint that a trainer goes on from: its own, or the next one's that has one."""
    for step in range(trainers):
        folder = round_folder(folder_of(output, (trainer + step) % trainers), number)
        if (folder / CHECKPOINT).exists():
            return folder
    raise NotFoundError(f"checkpoint of round {number} in {output}", found="none", remedy="start without --resume")
