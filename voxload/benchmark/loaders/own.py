"""voxload's own loader, through its public names."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch.distributed as dist
from torch import Tensor

from voxload.benchmark.loaders.delivery import Loading, is_on_device
from voxload.benchmark.loaders.protocol import Task, epoch_indices, group_sampler
from voxload.benchmark.loaders.volumes import HDF5, NPY, RAW, ZARR2, ZARR3, dataset_of
from voxload.data.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.grid import ProcessGrid
from voxload.loader.cache import CLAIRVOYANT, Cache
from voxload.loader.dataloader import DataLoader


@dataclass(frozen=True, slots=True)
class LoneGrid(ProcessGrid):
    """One rank to whoever would talk to others; its block is that of its place among all of them."""

    place: ProcessGrid = field(default_factory=ProcessGrid)
    """The ranks, of which others are absent."""

    def block(self, shape: Sequence[int]) -> Box:
        """See ProcessGrid."""
        return self.place.block(shape)


def is_whole(grid: ProcessGrid) -> bool:
    """Tell whether all ranks of a grid run, and can talk to each other by torch.distributed."""
    if grid.world_size == 1:
        return True
    is_job = dist.is_available() and dist.is_initialized()
    return is_job and (dist.get_world_size(), dist.get_rank()) == (grid.world_size, grid.rank)


_ALONE = ("auto", "none")
"""What may be said of peers where some ranks are absent: nothing comes from any then."""


class OwnLoading(Loading):
    """See BenchLoader.

    The order is that of the sampler over sample groups, which the loader can foresee; it refuses others. Where only
    some ranks of the job run, each is alone: its block is that of its place, and nothing comes from peers; the task's
    data set may be of a `LoneGrid` already, else one is made. With zero threads, which `OwnKind` refuses, how many read
    and how far ahead is as the loader has it by default. Orders of later epochs are used where the workload says so.
    """

    def __init__(self, task: Task, readers: Literal["threads", "process"] = "threads") -> None:
        super().__init__(task)
        workload, data = task.workload, task.data
        self._task = task
        self._own: VolumeDataset | None = None
        is_alone = not is_whole(task.grid)
        if is_alone:
            is_cut = isinstance(data.grid, LoneGrid)
            data = self._own = data if is_cut else dataset_of(workload, LoneGrid(place=task.grid))
        self._sampler = group_sampler(workload.share, len(data), task.grid)
        cache = _cache(task, is_alone=is_alone)
        self._loader: DataLoader[Any] = DataLoader(
            data,
            self._size,
            sampler=self._sampler,
            num_workers=workload.supply.threads,
            prefetch_factor=workload.supply.prefetch if workload.supply.threads else None,
            cache=cache,
            device=workload.supply.device if is_on_device(workload.supply) else None,
            readers=readers,
            clairvoyant=workload.looks_beyond,
        )

    def epoch(self, number: int, indices: tuple[int, ...]) -> Iterator[Tensor]:
        """See BenchLoader; raises UsageError for an order that is not the workload's."""
        self._end()
        whole = epoch_indices(self._task.workload.share, len(self._task.data), self._task.grid, number)
        is_cut = len(indices) < len(whole)
        if indices != whole[: len(indices)] or (is_cut and len(indices) % self._size):
            raise UsageError(
                f"order of epoch {number}",
                found="other samples than the seed gives",
                expected="the first batches of voxload.benchmark.loaders.protocol.epoch_indices",
            )
        self._sampler.set_epoch(number)
        return super().epoch(number, indices)

    def counts(self) -> Mapping[str, Any]:
        """See BenchLoader."""
        stats = self._loader.stats()
        sources = {
            kind: {"bytes": traffic.nbytes, "blocks": traffic.fetches, "seconds": traffic.seconds}
            for kind, traffic in stats.sources.items()
        }
        return {
            "bytes_read": stats.bytes_read,
            "bytes_decoded": stats.bytes_decoded,
            "seconds_stalled": stats.seconds_stalled,
            "sources": sources,
        }

    def close(self) -> None:
        """See BenchLoader; files of the task's data set stay open, unless it is of a `LoneGrid`."""
        super().close()
        self._loader.close()
        if self._own is not None:
            self._own.close()

    def _batches(self, indices: tuple[int, ...]) -> Generator[Tensor]:
        steps = -(-len(indices) // self._size)
        for (batch,) in islice(self._loader, steps):
            yield batch
            del batch


@dataclass(frozen=True, slots=True)
class OwnKind:
    """See LoaderKind."""

    name: str
    title: str
    readers: Literal["threads", "process"]
    needs: tuple[str, ...] = ()
    formats: tuple[str, ...] = (HDF5, ZARR2, ZARR3, NPY, RAW)
    reads_data: bool = True

    def build(self, task: Task) -> OwnLoading:
        """See LoaderKind; raises UsageError too for zero threads, and for peers of which some are absent."""
        supply = task.workload.supply
        if supply.threads < 1:
            raise UsageError(f"threads of loader {self.name}", found=str(supply.threads), expected="1 or more")
        if supply.keeps_blocks and supply.peers not in _ALONE and not is_whole(task.grid):
            raise UsageError(
                f"peers {supply.peers!r}",
                found="a job of which only some ranks run",
                expected=f"all {task.grid.world_size} ranks, joined by torch.distributed",
                remedy="start all of them, or use --peers auto",
            )
        return OwnLoading(task, self.readers)


KIND = OwnKind("voxload", "voxload", "threads")
APART = OwnKind("voxload-process", "voxload, read by another process", "process")


def _cache(task: Task, *, is_alone: bool) -> Cache | None:
    """Return where blocks are kept; a rank that is alone takes its part of the node for itself."""
    supply = task.workload.supply
    if not supply.keeps_blocks:
        return None
    sharers = task.node_ranks if is_alone else 1
    folder = Path(supply.disk) if supply.disk else None
    if folder is not None and sharers > 1:
        folder /= f"rank{task.grid.rank}"
    return Cache(
        memory=supply.memory // sharers,
        disk=folder,
        disk_size=supply.disk_bytes // sharers,
        peers="none" if is_alone else supply.peers,
        policy=supply.policy or CLAIRVOYANT,
        clairvoyant=task.workload.looks_beyond,
        epochs=task.workload.length.epochs,
    )
