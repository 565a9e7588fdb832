"""generate: a data set for the benchmark, sample by sample, with its catalogue and what is needed to verify it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from voxload.benchmark.generate.generated import PLAN_NAME, read_plan, write_plan
from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.storage import StoreFormat
from voxload.benchmark.generate.stores import check_filters, sample_path, stored_sample, write_sample
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.convert.options import Progress
from voxload.convert.write.lock import locked
from voxload.convert.write.writer import writing
from voxload.errors import StorageError, UsageError
from voxload.files.atomic import TEMPORARY_MARK, remove
from voxload.launch.worker_pool import completed, worker_pool
from voxload.units import format_bytes

_SLACK = 1.05
"""Room that is asked for over what a trial chunk promises."""


def pending_samples(folder: Path, plan: DatasetPlan) -> list[int]:
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


@dataclass(frozen=True, slots=True)
class GenerateReport:
    """What a run made."""

    catalog: Path
    """The catalogue."""
    samples: int
    """Samples of the data set."""
    written: int
    """Samples that this run wrote."""
    nbytes: int
    """Bytes of all samples' voxels."""
    stored_bytes: int
    """Bytes of all samples in storage."""
    seconds: float
    """Time the run took."""


def generate(
    folder: str | os.PathLike[str],
    plan: DatasetPlan,
    *,
    workers: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> GenerateReport:
    """Write the samples of a plan into a folder, with a catalogue that `VolumeDataset` takes.

    May be killed at any moment and run again with the same plan, or with more samples: complete samples are kept.

    Parameters
    ----------
    folder
        Where the samples go; made when there is none.
    plan
        What is made.
    workers
        Processes; one works in the calling one.
    progress
        Called in the calling thread after each part of a sample, with several workers after each sample.

    Raises
    ------
    UsageError
        When the folder holds something else; nothing was written.
    StorageError
        When the disk has too little room, before anything is written, or refuses later.
    InternalError
        When a worker is killed.
    """
    started, target = time.perf_counter(), Path(folder)
    if workers < 1:
        raise UsageError("workers", found=str(workers), expected="1 or more")
    if plan.storage.format is StoreFormat.HDF5:
        check_filters(plan.storage.codec)
    pending_samples(target, plan)  # refuses before there is a folder
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    with locked(target):
        pending = pending_samples(target, plan)
        _remove_leftovers(target)
        write_plan(plan, target)
        tally = _Tally(len(pending) * plan.sample_bytes, progress)
        stored = dict(_write(plan, target, pending, workers=workers, tally=tally))
        catalog, total = _write_catalog(plan, target, stored)
    return GenerateReport(
        catalog=catalog,
        samples=plan.samples,
        written=len(pending),
        nbytes=plan.samples * plan.sample_bytes,
        stored_bytes=total,
        seconds=time.perf_counter() - started,
    )


@dataclass(slots=True)
class _Tally:
    """Bytes of voxels written so far."""

    total: int
    progress: Callable[[Progress], None] | None
    done: int = 0

    def advance(self, sample: str, nbytes: int) -> None:
        self.done += nbytes
        if self.progress is not None:
            self.progress(Progress(sample, self.done, self.total))


def _remove_leftovers(folder: Path) -> None:
    """Remove what a killed run had begun."""
    with writing(folder):
        for path in folder.iterdir():
            if path.name.startswith(".") and TEMPORARY_MARK in path.name:
                remove(path)


def _write(
    plan: DatasetPlan, folder: Path, numbers: Sequence[int], *, workers: int, tally: _Tally
) -> Iterator[tuple[int, int]]:
    """Write samples and yield the number and the stored bytes of each as it is complete."""
    if min(workers, len(numbers)) > 1:
        yield from _write_together(plan, folder, numbers, workers=min(workers, len(numbers)), tally=tally)
        return
    for number in numbers:
        yield number, write_sample(plan, folder, number, tell=partial(tally.advance, plan.name(number)))


def _write_together(
    plan: DatasetPlan, folder: Path, numbers: Sequence[int], *, workers: int, tally: _Tally
) -> Iterator[tuple[int, int]]:
    write = partial(write_sample, plan, folder)
    with worker_pool(workers) as pool:
        for number, nbytes in completed(pool, write, numbers, ahead=2 * workers):
            yield number, nbytes
            tally.advance(plan.name(number), plan.sample_bytes)


def _write_catalog(plan: DatasetPlan, folder: Path, stored: dict[int, int]) -> tuple[Path, int]:
    """Write the catalogue and return its path and the bytes of all samples in storage; `stored` has those known."""
    storage, path, entries = plan.storage, folder / CATALOG_NAME, []
    for number in range(plan.samples):
        size = stored[number] if number in stored else stored_sample(plan, folder, number)
        entries.append(
            Entry(
                sample=plan.name(number),
                path=sample_path(plan, folder, number).name,
                dataset=storage.format.dataset,
                shape=plan.stored_shape,
                dtype=plan.stored_dtype.str,
                axes=storage.axes,
                stored_bytes=size,
            )
        )
    Catalog.from_entries(entries, folder).write(path)
    return path, sum(entry.stored_bytes for entry in entries)
