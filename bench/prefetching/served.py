"""Served: samples behind the server's URLs, and how often each byte of their voxels left it, by its own log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np

from tests.support.throttle.process import Served
from voxload.benchmark.generate.generated import write_plan
from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.stores import sample_path
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of bytes that hold voxels, stored as they are used."""

    path: str
    """File, relative to the folder."""
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Tally:
    """One run."""

    requests: int
    data_bytes: int
    """Bytes of voxels, counted as often as they were served."""
    other_bytes: int
    """Everything else: metadata, and gaps between the chunks of a file."""
    least: int
    """How often the byte of a voxel was served that was served least."""
    most: int
    """How often the one that was served most."""


def linked(folder: Path, plan: DatasetPlan, url: str, target: Path) -> None:
    """Write a data set into the empty folder `target` whose samples are those of `folder` behind a URL.

    They are verified as those: the plan is written, too.
    """
    here = Catalog.read(folder)
    entries = [here.entry(*key) for key in here.keys]
    there = [replace(entry, path=f"{url}/{entry.path}") for entry in entries]
    Catalog.from_entries(there, target, allow_outside=True).write(target / CATALOG_NAME)
    write_plan(plan, target)


def extents(folder: Path, plan: DatasetPlan) -> list[Extent]:
    """Return where the voxels of a generated data set are that is not compressed."""
    paths = (sample_path(plan, folder, number) for number in range(plan.samples))
    return [extent for path in paths for extent in _extents(path, plan.storage.format.dataset)]


def _extents(path: Path, dataset: str) -> Iterator[Extent]:
    if path.is_dir():
        for chunk in sorted((path / "c").rglob("*")):
            if chunk.is_file():
                yield Extent(str(chunk.relative_to(path.parent)), 0, chunk.stat().st_size)
        return
    with h5py.File(path) as file:
        stored = file[dataset].id
        for number in range(stored.get_num_chunks()):
            info = stored.get_chunk_info(number)
            yield Extent(path.name, info.byte_offset, info.byte_offset + info.size)


def tally(log: Iterable[Served], voxels: Iterable[Extent]) -> Tally:
    """Return what a log comes to, for voxels at these places."""
    runs = list(voxels)
    ends = {path: max(run.stop for run in runs if run.path == path) for path in {run.path for run in runs}}
    times = {path: np.zeros(end, np.int64) for path, end in ends.items()}
    requests = total = 0
    for one in log:
        requests += 1
        total += one.nbytes
        if one.path in times:
            times[one.path][one.start : one.stop] += 1
    parts = [times[run.path][run.start : run.stop] for run in runs]
    data = sum(int(part.sum()) for part in parts)
    return Tally(
        requests=requests,
        data_bytes=data,
        other_bytes=total - data,
        least=min(int(part.min()) for part in parts),
        most=max(int(part.max()) for part in parts),
    )
