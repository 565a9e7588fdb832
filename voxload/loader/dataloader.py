"""DataLoader: torch's DataLoader, with blocks read ahead by threads when the data set is a VolumeDataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter
from typing_extensions import TypeVar

from voxload.data.dataset import VolumeDataset
from voxload.display.description import Described, Description
from voxload.display.table import several
from voxload.errors import UsageError
from voxload.loader.arguments import (
    check_arguments,
    check_epoch,
    check_parts,
    group_sampler,
    is_read_by_threads,
    parse_clairvoyant,
    parse_readers,
    transforms_of,
    warn_of_processes,
)
from voxload.loader.cache import Cache
from voxload.loader.device.copiers import Device, parse_device, parse_keep
from voxload.loader.iterator import VolumeIterator, counted_iterator
from voxload.loader.order.cursor import Cursor, Indices
from voxload.loader.pipeline import DEFAULT_READERS, Pipeline, PipelineBudget
from voxload.loader.sampler import GroupSampler
from voxload.loader.stats import LoaderStats
from voxload.loader.wrapped import unwrapped
from voxload.transforms import Transform
from voxload.units import format_bytes, parse_bytes

DEFAULT_STAGING = "1GiB"
"""Staging budget: two 512^3 x 4 int16 blocks of a (2, 2, 1) grid and a batch in use."""

_COUNTED = (GroupSampler, RandomSampler, SequentialSampler)
"""Samplers whose length is a plain number; another one may work it out, or ask other ranks."""
_SETTLED = ("staging", "cache", "device", "keep", "readers", "clairvoyant")
"""What cannot be changed once there is a loader: its buffers and tiers are made by it."""

Item_co = TypeVar("Item_co", covariant=True, default=Any)
"""What the data set gives, as torch's loader has it: `DataLoader[Item_co]` is for annotations."""


class DataLoader(Described, torch.utils.data.DataLoader[Item_co]):
    """torch's DataLoader; a VolumeDataset is read ahead by threads into a bounded ring of reused buffers.

    Every argument of torch's loader is accepted in torch's order, and is an attribute afterwards; so are those added.
    For any data set that is not a VolumeDataset this is torch's loader unchanged. For a VolumeDataset:

    * batches, their order and their types are what torch's loader gives for the same sampler, seed and epoch, unless a
      cache has a `locality`, which deals the samples of each step to other groups;
    * ``num_workers`` counts reader threads (0 means 2) and ``prefetch_factor`` batches ahead per thread;
      ``multiprocessing_context`` has nothing to act on, because no process is started, and neither has
      ``worker_init_fn``, which is warned of;
    * without a sampler of the caller's, ranks of one sample group get the same samples: the order is built over
      groups with `GroupSampler`, seeded by ``generator`` (0 without one);
    * ranks of a group compare the samples of every batch over torch.distributed, and all of them raise
      UsageError when they differ;
    * a batch's tensors look into a staging slot that is reused once nobody holds them any more.

    Parameters
    ----------
    dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory, drop_last, timeout,
    worker_init_fn, multiprocessing_context, generator, prefetch_factor, persistent_workers, pin_memory_device, in_order
        As torch's loader. A ``Subset``, one of ``random_split`` too, or a ``ConcatDataset`` of VolumeDatasets becomes
        one VolumeDataset of the same samples, which ``loader.dataset`` is then.
    transform
        Applied to each batch's volumes: a callable for the first field, or a mapping from field names.
    staging
        Most bytes of the buffers read ahead into, as a number or like ``"1GiB"``. With a cache, iterators that begin
        while another one is under way share as many again.
    cache
        Where blocks are kept near, and by which policy; None reads each block from the storage in every epoch.
    device
        Where batches are delivered, ``"cuda"`` or ``"cpu"``, from pinned slots and into buffers that are used again: a
        batch stays valid until `keep` others were asked for, then it is overwritten. ``"cuda"`` is the device that is
        current when the first epoch begins. None gives CPU tensors as torch would.
    keep
        Batches that stay valid on a device: the last one and those before it.
    readers
        ``"threads"`` of this process; or ``"process"``: those of a process of its own, which takes nothing from the
        loop but what it takes to hear of a batch. It has a copy of the data set, as worker processes have, and fills
        slots in shared memory; its threads read once it has begun. One that is killed is begun again, once.
    clairvoyant
        Whether orders beyond the epoch at hand are used. False reads no batch before its epoch begins, for benchmarks
        that forbid to know the seed; a cache must then have ``clairvoyant=False`` too, which alone is enough.
    kwargs
        What a later torch adds.

    Raises
    ------
    UsageError
        When arguments contradict each other or, at the first batch, two slots do not fit the budget.
    ValueError, TypeError, AssertionError
        What torch's loader raises for its own arguments.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - torch's own signature, and one word for each thing that is added
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Transform | Mapping[str, Transform] | None = None,
        staging: int | str = DEFAULT_STAGING,
        cache: Cache | None = None,
        device: Device | None = None,
        keep: int = 1,
        readers: Literal["threads", "process"] = "threads",
        clairvoyant: bool = True,
        **kwargs: Any,
    ) -> None:
        # Each argument is an attribute of its name: frameworks make loaders anew from those.
        dataset = unwrapped(dataset)
        self.transform = transform
        self.staging = staging
        self.cache = cache
        self.device = device
        self.keep = keep
        self.readers = readers
        self.clairvoyant = clairvoyant
        self._pipeline: Pipeline | None = None
        self._cursor = Cursor()
        self._indices: Indices | None = None
        if isinstance(dataset, VolumeDataset) and sampler is None and batch_sampler is None:
            sampler = group_sampler(dataset, generator, shuffle=bool(shuffle), drop_last=drop_last)
            shuffle = shuffle if sampler is None else None
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
            **kwargs,
        )
        check_arguments(self, {"transform": transform, "cache": cache, "device": device})
        warn_of_processes(self)
        if is_read_by_threads(dataset):
            self._pipeline = self._new_pipeline(dataset)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop is: behind the last batch that it got, whatever was read ahead of that.

        A few ints and strings, less than 1 KiB as JSON, made in no time: see `load_state_dict` for what goes on from
        it. Call it at any time between two batches, also before the first and after the last. It holds for all sample
        groups, provided that they are at the same batch. It is larger where the sampler gives states of its own, and
        where a generator was used for so much else that its place cannot be said in two numbers: about 6 KB.

        Raises
        ------
        UsageError
            For an iterable data set, or with ``in_order=False`` of worker processes half-way through an epoch.
        """
        return self._cursor.state(self).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next iterator go on where a state was saved, without reading or drawing what lies before.

        Its batches are those that the loop which was saved would have got next. With other sample groups, another
        spatial grid, thread count or batch size the rest of the epoch is dealt anew: no sample is lost, and none is
        repeated but the fewer than there are groups that make the rest divide evenly. Epochs behind it are the
        sampler's, which is told the number of the epoch if it has `set_epoch`. Where another one is chosen before the
        next iterator is made, that begins afresh. ``{}`` forgets what was loaded and counted.

        Raises
        ------
        UsageError
            When the state is of other samples, fields or targets, another seed or kind of sampler, or another format.
            At the first batch, when a sampler that has to be iterated anew draws other samples than it did.
        """
        self._cursor.load(self, state_dict)

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch; those behind it follow, unless their sampler has to be told each.

        It is passed on to the sampler and the data set, if they have `set_epoch`. An order of torch's random samplers,
        ``shuffle=True`` on one rank too, is from then on drawn from a generator seeded by the number: that plus the
        seed of the loader's generator, or of torch's.
        """
        self._cursor.choose(self, epoch)

    def stats(self) -> LoaderStats:
        """Return bytes, stalls and utilisation of all epochs so far; raises UsageError without a VolumeDataset."""
        if self._pipeline is None:
            raise UsageError("stats", found="a data set of another kind", remedy="use a VolumeDataset")
        return self._pipeline.recorder.snapshot(self._pipeline.meter.totals() if self.cache else None)

    def close(self) -> None:
        """Stop all threads and give back memory, files and connections; a further epoch begins with nothing kept.

        Happens by itself when the loader goes. Ranks that share blocks close at about the same time: what a rank
        still asks of one that closed comes from the storage. Call it when no iterator is in use.
        """
        if self._pipeline is not None:
            self._pipeline.close()

    def check_worker_number_rationality(self) -> None:
        """Warn of more worker processes than cores, as torch does; reader threads are none."""
        if not is_read_by_threads(self.dataset):
            super().check_worker_number_rationality()

    @property
    def _is_accelerate_prepared(self) -> bool:
        """What Accelerate asks of a loader first; it would make it anew as torch's own, without all that is added."""
        if self._pipeline is None:
            return False
        raise UsageError(
            "accelerator.prepare",
            found="a voxload.DataLoader over a VolumeDataset",
            remedy="call voxload.loader.accelerate.prepare(accelerator, loader)",
        )

    def _described(self) -> Description:
        """Return what is known without asking samplers, data sets or ranks anything that may take time."""
        name, data = type(self).__name__, self.dataset
        kind = type(data).__name__
        if not isinstance(data, VolumeDataset):
            facts = {"data set": f"{kind}, read as torch's loader reads it", "batch size": f"{self.batch_size}"}
            return Description(name, (kind, f"batch size {self.batch_size}"), facts)
        cache = [] if self.cache is None else self.cache.words()
        budget = format_bytes(parse_bytes(self.staging))
        batches = self.batch_sampler if self.batch_size is None else None
        size = "of the batch sampler" if batches is not None else f"{self.batch_size or 'none: single samples'}"
        parts = [f"{kind} of {several(len(data), 'sample')}", f"batch size {size}", f"readers {self.readers}"]
        parts += [f"staging {budget}", *(["cache " + ", ".join(cache)] if cache else [])]
        parts += [] if self.device is None else [f"device {self.device}"]
        facts = {
            "batches of an epoch": f"{len(self):,}" if self._counts_at_once(data) else "",
            "batch size": size,
            "order": type(self.sampler if batches is None else batches).__name__,
            "reader threads": f"{self.num_workers or DEFAULT_READERS} ({self.readers})",
            "staging": f"{budget} at most",
            "cache": ", ".join(cache) or "none: each block is read in every epoch",
            "device": "" if self.device is None else f"{self.device}",
            **({} if self._pipeline is None else self._pipeline.recorder.facts()),
        }
        inner = data.description()
        return Description(name, tuple(parts), {**facts, **inner.facts}, inner.listings, inner.picture)

    def _counts_at_once(self, data: VolumeDataset) -> bool:
        """Tell whether the number of batches is known without asking anybody."""
        return self.batch_size is not None and data.is_grid_known and isinstance(self.sampler, _COUNTED)

    def __setattr__(self, attr: str, val: Any) -> None:
        if attr in _SETTLED and vars(self).get("_pipeline") is not None:
            raise ValueError(f"{attr} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(attr, val)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but what an epoch leaves behind: a copy begins with nothing read, kept or counted."""
        return {**vars(self), "_pipeline": None, "_cursor": Cursor()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if is_read_by_threads(self.dataset):
            self._pipeline = self._new_pipeline(self.dataset)

    def _new_pipeline(self, dataset: VolumeDataset) -> Pipeline:
        device, keep = parse_device(self.device), parse_keep(self.keep)
        is_apart = parse_readers(self.readers, self.cache)
        is_clairvoyant = parse_clairvoyant(self.clairvoyant, self.cache)
        budget = PipelineBudget(
            parse_bytes(self.staging), self.cache, device, keep, is_apart=is_apart, is_clairvoyant=is_clairvoyant
        )
        return Pipeline(self, dataset, budget, transforms=transforms_of(dataset, self.transform), cursor=self._cursor)

    @property
    def _index_sampler(self) -> Any:
        """What the iterators draw from, while they are made; torch's own at other times."""
        return super()._index_sampler if self._indices is None else self._indices

    def __iter__(self) -> _BaseDataLoaderIter:
        if not isinstance(self.dataset, IterableDataset):
            if self._pipeline is not None:
                if isinstance(self._iterator, VolumeIterator):
                    self._iterator.leave()  # one that persists is begun anew
                self._pipeline.follow()
                self._pipeline.check_free()
            self._cursor.begin(self)
        return super().__iter__()

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if isinstance(self.dataset, IterableDataset):
            return super()._get_iterator()
        self._indices = self._cursor.indices(self)
        try:
            return self._new_iterator()
        finally:
            self._indices = None

    def _new_iterator(self) -> _BaseDataLoaderIter:
        if self._pipeline is None or not isinstance(self.dataset, VolumeDataset):
            check_parts(self)
            return counted_iterator(self)
        # As torch, an epoch goes by the attributes that there are when it begins.
        check_arguments(self, {"transform": self.transform, "cache": self.cache, "device": self.device})
        check_epoch(self, self.dataset)
        self._pipeline.transforms = transforms_of(self.dataset, self.transform)
        return VolumeIterator(self, self._pipeline)
