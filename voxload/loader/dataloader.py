"""DataLoader: torch's DataLoader, with blocks read ahead by threads when the data set is a VolumeDataset."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import DistributedSampler, default_collate, default_convert
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter

from voxload.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.loader.agreement import GroupAgreement
from voxload.loader.batch import Batch, Batches
from voxload.loader.cache import Cache
from voxload.loader.clairvoyance import Clairvoyance, prepared
from voxload.loader.readahead import ReadAhead
from voxload.loader.sampler import GroupSampler
from voxload.loader.staging import LEAST_SLOTS, BatchLayout, StagingRing
from voxload.loader.stats import LoaderStats, StatsRecorder
from voxload.prefetch.meter import Meter
from voxload.transforms import Transform
from voxload.units import parse_bytes

DEFAULT_READERS = 2
"""Reader threads when num_workers is 0: h5py's lock and zarr's own pool make more of little use."""
DEFAULT_STAGING = "1GiB"
"""Staging budget: two 512^3 x 4 int16 blocks of a (2, 2, 1) grid and a batch in use."""
_PREFETCH_FACTOR = 2
"""Batches read ahead per thread, torch's own default."""


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch's DataLoader; a VolumeDataset is read ahead by threads into a bounded ring of reused buffers.

    Every argument of torch's loader is accepted in torch's order. For any data set that is not a VolumeDataset
    this is torch's loader unchanged. For a VolumeDataset:

    * batches, their order and their types are what torch's loader gives for the same sampler, seed and epoch;
    * ``num_workers`` counts reader threads (0 means 2) and ``prefetch_factor`` batches ahead per thread;
      ``worker_init_fn`` and ``multiprocessing_context`` have nothing to act on, because no process is started;
    * without a sampler of the caller's, ranks of one sample group get the same samples: the order is built over
      groups with `GroupSampler`, seeded by ``generator`` (0 without one);
    * ranks of a group compare the samples of every batch over torch.distributed, and all of them raise
      UsageError when they differ;
    * a batch's tensors look into a staging slot that is reused once nobody holds them any more.

    Parameters
    ----------
    dataset, args, kwargs
        As torch's loader.
    transform
        Applied to each batch's volumes: a callable for the first field, or a mapping from field names.
    staging
        Most bytes of the buffers read ahead into, as a number or like ``"1GiB"``. With a cache, iterators that begin
        while another one is under way share as many again.
    cache
        Where blocks are kept near, and by which policy; None reads each block from the storage in every epoch.

    Raises
    ------
    UsageError
        When arguments contradict each other or, at the first batch, two slots do not fit the budget.
    ValueError, TypeError
        What torch's loader raises for its own arguments.
    """

    def __init__(
        self,
        dataset: Any,
        *args: Any,
        transform: Transform | Mapping[str, Transform] | None = None,
        staging: int | str = DEFAULT_STAGING,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> None:
        self.transform = transform
        self.staging = staging
        self.cache = cache
        self._volumes = dataset if isinstance(dataset, VolumeDataset) else None
        self._recorder = StatsRecorder()
        self._ring: StagingRing | None = None
        self._clairvoyance: Clairvoyance | None = None
        self._meter = Meter()
        if self._volumes is None:
            for name, given in (("transform", transform), ("cache", cache)):
                if given is not None:
                    raise UsageError(name, found="a data set of another kind", remedy="use it on a VolumeDataset")
            super().__init__(dataset, *args, **kwargs)
            return
        bound = inspect.signature(super().__init__).bind(dataset, *args, **kwargs)
        _sample_over_groups(self._volumes, bound.arguments)
        super().__init__(**bound.arguments)
        self._budget = parse_bytes(staging)
        self._transforms = _transforms_of(self._volumes, transform)
        self._preparing = prepared(cache)
        self._agreement = GroupAgreement(self._volumes.grid, self._volumes.fingerprint)
        _check_sampler(self._volumes, self.sampler)
        if transform is not None and self.collate_fn not in (default_collate, default_convert):
            raise UsageError("transform", found="a collate_fn of your own", remedy="call the transform inside it")

    def stats(self) -> LoaderStats:
        """Return bytes, stalls and utilisation of all epochs so far; raises UsageError without a VolumeDataset."""
        if self._volumes is None:
            raise UsageError("stats", found="a data set of another kind", remedy="use a VolumeDataset")
        return self._recorder.snapshot(self._meter.totals() if self.cache else None)

    def close(self) -> None:
        """Stop all threads and give back memory, files and connections; a further epoch begins with nothing kept.

        Happens by itself when the loader goes. Ranks that share blocks close at about the same time: what a rank
        still asks of one that closed comes from the storage. Call it when no iterator is in use.
        """
        clairvoyance, self._clairvoyance = self._clairvoyance, None
        if clairvoyance is not None:
            clairvoyance.close()

    def check_worker_number_rationality(self) -> None:
        """Warn of more worker processes than cores, as torch does; reader threads are none."""
        if self._volumes is None:
            super().check_worker_number_rationality()

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return super()._get_iterator() if self._volumes is None else VolumeIterator(self, self._volumes)

    def _begin(self) -> bool:
        """Begin an epoch, right before its iterator is made; tells whether its batches come by way of the cache."""
        if self._volumes is None or self.cache is None or not len(self._volumes):
            return False
        if self._clairvoyance is None:
            self._preparing.join()
            volumes, threads = self._volumes, self._threads
            self._clairvoyance = Clairvoyance(
                self,
                volumes,
                cache=self.cache,
                ring=lambda notify: self._new_ring(volumes, notify),
                threads=threads,
                meter=self._meter,
            )
        if self._clairvoyance.is_busy:  # with another iterator: this one reads for itself
            return False
        self._clairvoyance.begin()
        return True

    def _batches(self, indices: Iterator[Sequence[int]], *, is_cached: bool) -> Batches:
        """Return the batches of one epoch."""
        if self._volumes is None:
            raise UsageError("read-ahead", found="a data set of another kind", remedy="use a VolumeDataset")
        timeout = self.timeout or None
        if is_cached and self._clairvoyance is not None:
            return self._clairvoyance.epoch(indices, timeout)
        if self._ring is None:  # made by the first epoch, and used by all of them
            self._ring = self._new_ring(self._volumes, None)
        return ReadAhead(self._volumes, indices, ring=self._ring, threads=self._threads, timeout=timeout)

    @property
    def _threads(self) -> int:
        return self.num_workers or DEFAULT_READERS

    def _new_ring(self, volumes: VolumeDataset, notify: Callable[[], None] | None) -> StagingRing:
        """Return slots for as many batches as are read ahead."""
        ahead = self._threads * (self.prefetch_factor or _PREFETCH_FACTOR)
        layout = BatchLayout(_largest_batch(self), volumes.layout(0))
        return StagingRing(layout, budget=self._budget, most=ahead + LEAST_SLOTS, notify=notify)


class VolumeIterator(_BaseDataLoaderIter):
    """One epoch over a VolumeDataset; used by one thread."""

    def __init__(self, loader: DataLoader, volumes: VolumeDataset) -> None:
        is_cached = loader._begin()  # noqa: SLF001 - its own iterator
        super().__init__(loader)
        self._loader = loader
        self._volumes = volumes
        self._begin(is_cached=is_cached)

    def _begin(self, *, is_cached: bool) -> None:
        self._ahead: Batches | None = None
        if len(self._volumes):
            drawn = _index_lists(self._sampler_iter, are_lists=self._auto_collation)
            self._ahead = self._loader._batches(drawn, is_cached=is_cached)  # noqa: SLF001 - its own iterator
        self._delivered: float | None = None
        self._step = 0

    def _reset(self, loader: torch.utils.data.DataLoader[Any], first_iter: bool = False) -> None:
        """Start the next epoch with the same iterator, as persistent workers ask for."""
        is_cached = self._loader._begin()  # noqa: SLF001 - its own iterator
        super()._reset(loader, first_iter)
        self._begin(is_cached=is_cached)

    def _next_data(self) -> Any:
        """Return the next batch, checked against the other ranks of the group."""
        asked = perf_counter()
        recorder = self._loader._recorder  # noqa: SLF001 - its own iterator
        if self._delivered is not None:
            recorder.computed(asked - self._delivered)
            self._delivered = None
        batch = self._ahead.next() if self._ahead is not None else None
        read = perf_counter()
        self._loader._agreement.check(None if batch is None else batch.indices, step=self._step)  # noqa: SLF001 - its own iterator
        agreed = perf_counter()
        if batch is None:
            raise StopIteration
        data = self._collate(batch)
        self._step += 1
        self._delivered = perf_counter()
        needed = sum(volume.nbytes for volume in batch.volumes)
        recorder.delivered(samples=len(batch.indices), needed=needed, cost=batch.cost)
        recorder.waited(asked=asked, stall=self._delivered - asked - (agreed - read))
        return data

    def _collate(self, batch: Batch) -> Any:
        """Assemble what the loop sees, as torch would have with the same collate_fn."""
        if self._collate_fn in (default_collate, default_convert):
            transforms = self._loader._transforms  # noqa: SLF001 - its own iterator
            parts = [
                change(volume) if change else volume for volume, change in zip(batch.volumes, transforms, strict=True)
            ]
            parts += [] if batch.targets is None else [batch.targets]
            data: Any = parts if self._auto_collation else [part[0] for part in parts]
        else:
            columns = (*batch.volumes, *(() if batch.targets is None else (batch.targets,)))
            samples: Any = [tuple(column[place] for column in columns) for place in range(len(batch.indices))]
            data = self._collate_fn(samples if self._auto_collation else samples[0])
        return pin_memory(data, self._pin_memory_device) if self._pin_memory else data  # type: ignore[no-untyped-call] # torch's


def _index_lists(drawn: Iterator[Any], *, are_lists: bool) -> Iterator[Sequence[int]]:
    """Yield each batch's indices; knows no iterator, which would otherwise hold itself alive."""
    for index in drawn:
        yield list(index) if are_lists else [index]


def _sample_over_groups(data: VolumeDataset, arguments: dict[str, Any]) -> None:
    """Put a sampler over sample groups in place of torch's default, which every rank would draw for itself."""
    if data.grid.world_size == 1 or arguments.get("sampler") is not None or arguments.get("batch_sampler") is not None:
        return
    generator = arguments.get("generator")
    arguments["sampler"] = GroupSampler(
        data,
        data.grid,
        shuffle=bool(arguments.pop("shuffle", False)),
        seed=generator.initial_seed() if generator is not None else 0,
        drop_last=bool(arguments.get("drop_last", False)),
    )


def _check_sampler(data: VolumeDataset, sampler: Any) -> None:
    """Refuse torch's DistributedSampler over ranks where several ranks share a sample."""
    grid = data.grid
    if grid.group_size == 1 or not isinstance(sampler, DistributedSampler):
        return
    if (sampler.num_replicas, sampler.rank) != (grid.groups, grid.group):
        raise UsageError(
            "DistributedSampler",
            found=f"rank {sampler.rank} of {sampler.num_replicas}",
            expected=f"group {grid.group} of {grid.groups}: ranks of a sample group need the same samples",
            remedy="leave the sampler out, or pass num_replicas=grid.groups, rank=grid.group",
        )


def _transforms_of(
    data: VolumeDataset, transform: Transform | Mapping[str, Transform] | None
) -> tuple[Transform | None, ...]:
    """Return each field's transform."""
    named = transform if isinstance(transform, Mapping) else {data.field_names[0]: transform} if transform else {}
    unknown = set(named) - set(data.field_names)
    if unknown:
        raise UsageError("transform", found=f"field {min(unknown)!r}", expected=f"one of {list(data.field_names)}")
    return tuple(named.get(name) for name in data.field_names)


def _largest_batch(loader: DataLoader) -> int:
    """Return the most samples in a batch: what a slot must hold."""
    if loader.batch_sampler is None:
        return 1
    size = getattr(loader.batch_sampler, "batch_size", None)
    if not isinstance(size, int):
        raise UsageError(
            "batch_sampler",
            found=f"{type(loader.batch_sampler).__name__} without a batch_size",
            expected="to know the largest batch, so that the buffers fit it",
            remedy="give it an attribute batch_size",
        )
    return size
