"""DataLoader: torch's DataLoader, with blocks read ahead by threads when the data set is a VolumeDataset."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from voxload.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.loader.arguments import check_sampler, sample_over_groups, transforms_of
from voxload.loader.cache import Cache
from voxload.loader.delivery import is_torchs
from voxload.loader.iterator import VolumeIterator
from voxload.loader.reading import Budget, Reading
from voxload.loader.stats import LoaderStats
from voxload.transforms import Transform
from voxload.units import parse_bytes

DEFAULT_STAGING = "1GiB"
"""Staging budget: two 512^3 x 4 int16 blocks of a (2, 2, 1) grid and a batch in use."""


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
        self._reading: Reading | None = None
        if not isinstance(dataset, VolumeDataset):
            for name, given in (("transform", transform), ("cache", cache)):
                if given is not None:
                    raise UsageError(name, found="a data set of another kind", remedy="use it on a VolumeDataset")
            super().__init__(dataset, *args, **kwargs)
            return
        bound = inspect.signature(super().__init__).bind(dataset, *args, **kwargs)
        sample_over_groups(dataset, bound.arguments)
        super().__init__(**bound.arguments)
        check_sampler(dataset, self.sampler)
        if transform is not None and not is_torchs(self.collate_fn):
            raise UsageError("transform", found="a collate_fn of your own", remedy="call the transform inside it")
        transforms = transforms_of(dataset, transform)
        self._reading = Reading(self, dataset, Budget(parse_bytes(staging), cache), transforms=transforms)

    def stats(self) -> LoaderStats:
        """Return bytes, stalls and utilisation of all epochs so far; raises UsageError without a VolumeDataset."""
        if self._reading is None:
            raise UsageError("stats", found="a data set of another kind", remedy="use a VolumeDataset")
        return self._reading.recorder.snapshot(self._reading.meter.totals() if self.cache else None)

    def close(self) -> None:
        """Stop all threads and give back memory, files and connections; a further epoch begins with nothing kept.

        Happens by itself when the loader goes. Ranks that share blocks close at about the same time: what a rank
        still asks of one that closed comes from the storage. Call it when no iterator is in use.
        """
        if self._reading is not None:
            self._reading.close()

    def check_worker_number_rationality(self) -> None:
        """Warn of more worker processes than cores, as torch does; reader threads are none."""
        if not isinstance(self.dataset, VolumeDataset):
            super().check_worker_number_rationality()

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return super()._get_iterator() if self._reading is None else VolumeIterator(self, self._reading)
