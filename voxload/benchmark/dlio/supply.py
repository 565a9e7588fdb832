"""Supply: voxload's loader over the files of a workload of DLIO, in the order in which DLIO deals samples.

Order: which samples a rank takes in an epoch, as DLIO deals them; pure. With a spatial grid the ranks of a sample
group share the samples that DLIO deals to each of them: in a step of theirs the group takes the batches of all its
ranks, of which each rank has its blocks. So a rank is given as many bytes as DLIO reckons, every sample is used once,
and steps and samples per second that DLIO prints stay true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

import torch

from voxload.benchmark.dlio.records import Cut, RecordDataset, records_of
from voxload.benchmark.dlio.settings import Options, Settings
from voxload.benchmark.loaders.delivery import GivenOrder
from voxload.errors import InternalError
from voxload.grid import ProcessGrid
from voxload.loader.dataloader import DataLoader
from voxload.readers.registry import find_format

Place = tuple[str, int]
"""A sample: its file and its number in that."""


def in_turns(orders: Sequence[Sequence[Any]], size: int) -> list[Any]:
    """Return what several lists hold, in turns of `size` from each."""
    turns = zip_longest(*(_pieces(order, size) for order in orders), fillvalue=())
    return [one for turn in turns for piece in turn for one in piece]


def by_index(numbers: Sequence[int], files: Sequence[str], *, per_file: int) -> list[Place]:
    """Return the samples that DLIO's index sampler numbers: file by file."""
    return [(files[number // per_file], number % per_file) for number in numbers]


def by_thread(listed: Mapping[int, Sequence[tuple[int, str, int]]], batch_size: int) -> list[Place]:
    """Return the samples that DLIO's iterative sampler lists for each of its threads, batch by batch in turns."""
    orders = [[(path, int(place)) for _, path, place in listed[thread]] for thread in sorted(listed)]
    return in_turns(orders, batch_size)


def _pieces(order: Sequence[Any], size: int) -> Iterator[tuple[Any, ...]]:
    rest = iter(order)
    while piece := tuple(islice(rest, size)):
        yield piece


Item = tuple[torch.Tensor, ...]
"""This rank's block of a sample: a tensor for each of its parts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a workload's samples are loaded."""

    settings: Settings
    options: Options
    grid: ProcessGrid

    @classmethod
    def of(cls, settings: Settings, options: Options) -> Plan:
        """Return the plan; raises UsageError when the ranks are not a whole number of sample groups."""
        return cls(settings, options, ProcessGrid(options.spatial, settings.ranks, settings.rank))

    @property
    def group_batch(self) -> int:
        """Samples of a sample group's step: those of all its ranks, see `voxload.benchmark.dlio.supply`."""
        return self.settings.batch_size * self.grid.group_size


class Supply:
    """Loads epoch after epoch in the order that is given; used by one thread.

    Parameters
    ----------
    files
        Paths of all files that samples are in.
    plan
        How they are loaded.

    Raises
    ------
    UsageError, DataError, NotFoundError
        For files and settings that voxload cannot read by.
    """

    def __init__(self, files: Sequence[str], plan: Plan) -> None:
        settings, first = plan.settings, min(files)
        records = records_of(settings, first, find_format(first).datasets(first))
        self._data = RecordDataset(sorted(set(files)), records, Cut.of(plan.options, plan.grid))
        self._number = {path: number for number, path in enumerate(self._data.files)}
        self._per_file = settings.per_file
        self._order = GivenOrder()
        self._loader: DataLoader[list[Item]] = DataLoader(
            self._data,
            batch_size=plan.group_batch,
            sampler=self._order,
            num_workers=settings.threads,
            collate_fn=_as_they_are,
            pin_memory=settings.is_pinned and torch.cuda.is_available(),
            drop_last=True,
            prefetch_factor=settings.prefetch if settings.threads else None,
            staging=plan.options.staging,
        )

    def has(self, order: Sequence[Place]) -> bool:
        """Tell whether all samples of an order are in the files that are known."""
        return all(path in self._number for path, _ in order)

    def epoch(self, order: Sequence[Place]) -> Iterator[list[Item]]:
        """Return an iterator over the batches of an epoch; raises InternalError for files that are not known."""
        if not self.has(order):
            raise InternalError("order of an epoch", found="files that are not the supply's", expected="those alone")
        self._order.indices = tuple(self._number[path] * self._per_file + place for path, place in order)
        return iter(self._loader)

    def counts(self) -> Mapping[str, Any]:
        """Return what the loader counted so far."""
        return self._loader.stats().as_dict()

    def close(self) -> None:
        """End the threads and close the files."""
        self._loader.close()
        self._data.close()


def size_of(batch: Sequence[Item]) -> int:
    """Return the bytes of a batch."""
    return sum(part.nbytes for item in batch for part in item)


def _as_they_are(items: list[Item]) -> list[Item]:
    """Leave the samples of a batch apart: DLIO's differ in size where a workload says a standard deviation."""
    return items
