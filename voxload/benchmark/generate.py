"""generate: a data set for the benchmark, sample by sample, with its catalogue and what is needed to verify it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from voxload.atomic import TEMPORARY_MARK, remove
from voxload.benchmark.crew import crew
from voxload.benchmark.dataset_plan import DatasetPlan
from voxload.benchmark.generated import write_plan
from voxload.benchmark.hdf5_store import check_filters
from voxload.benchmark.sample_store import sample_path, stored_sample, write_sample
from voxload.benchmark.storage import StoreFormat
from voxload.benchmark.survey import survey
from voxload.catalog import CATALOG_NAME, Catalog, Entry
from voxload.convert.options import Progress
from voxload.convert.write.lock import locked
from voxload.convert.write.writer import writing
from voxload.errors import UsageError


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
    survey(target, plan)  # refuses before there is a folder
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    with locked(target):
        pending = survey(target, plan)
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
    left = iter(numbers)
    under_way: dict[Future[int], int] = {}
    with crew(workers) as pool:
        while True:
            # Few more than there are workers: a data set may have a million samples, and each future takes memory.
            for number in islice(left, 2 * workers - len(under_way)):
                under_way[pool.submit(write_sample, plan, folder, number)] = number
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                number = under_way.pop(future)
                yield number, future.result()
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
