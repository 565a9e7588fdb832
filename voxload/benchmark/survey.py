"""Survey: what of a data set is still to be written, and whether the folder can take it; writes nothing."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from voxload.benchmark.dataset_plan import DatasetPlan
from voxload.benchmark.generated import PLAN_NAME, read_plan
from voxload.benchmark.sample_store import sample_path
from voxload.errors import StorageError, UsageError
from voxload.units import format_bytes

_SLACK = 1.05
"""Room that is asked for over what a trial chunk promises."""


def survey(folder: Path, plan: DatasetPlan) -> list[int]:
    """Return the numbers of the samples that are not complete.

    Raises UsageError when the folder holds something else, StorageError when its disk has too little room for them.
    """
    before = read_plan(folder)
    if before is None:
        _check_free(folder)
    elif replace(before, samples=plan.samples) != plan or before.samples > plan.samples:
        raise UsageError(
            f"{folder}",
            found=f"a data set of another plan, {PLAN_NAME}",
            expected="the same one, with as many samples or more",
            remedy="generate into another folder, or remove this one",
        )
    there = {entry.name for entry in os.scandir(folder)} if folder.is_dir() else set()
    pending = [number for number in range(plan.samples) if sample_path(plan, folder, number).name not in there]
    _check_room(folder, plan, len(pending))
    return pending


def _check_free(folder: Path) -> None:
    """Refuse a folder that holds anything but what a killed run may have left before it had begun."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}", found="a file", expected="a folder for the samples")
    others = [entry.name for entry in os.scandir(folder) if entry.name[0] != "."] if folder.exists() else []
    if others:
        raise UsageError(
            f"{folder}",
            found=f"{min(others)!r} in it and no {PLAN_NAME}",
            expected="an empty folder, or one that voxload bench generate wrote",
            remedy="generate into another folder",
        )


def _check_room(folder: Path, plan: DatasetPlan, samples: int) -> None:
    """Refuse a disk that is too full for so many samples more."""
    if not samples:
        return
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free, needed = shutil.disk_usage(there).free, int(samples * plan.stored_sample_bytes() * _SLACK)
    if needed > free:
        raise StorageError(
            f"{folder}",
            found=f"room for {format_bytes(free)} ({free} bytes)",
            expected=f"{format_bytes(needed)} ({needed} bytes) for {samples} samples",
            remedy="make room, choose another disk or fewer samples",
        )
