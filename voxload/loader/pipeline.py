"""Pipeline: all that a DataLoader over a VolumeDataset keeps from one epoch to the next."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

from voxload.data.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.loader.agreement import GroupAgreement
from voxload.loader.arguments import largest_batch
from voxload.loader.batch import Batches
from voxload.loader.cache import Cache
from voxload.loader.caching.kept import Kept, kept_of
from voxload.loader.caching.prefetcher import Prefetcher
from voxload.loader.device.batches import DeviceEpochs
from voxload.loader.device.copiers import with_index
from voxload.loader.growth import Growth
from voxload.loader.helper.memory import SharedSlots
from voxload.loader.helper.team import ReaderTeam
from voxload.loader.order.cursor import Cursor
from voxload.loader.order.orders import sampler_of
from voxload.loader.reading.batch_reads import BatchReads
from voxload.loader.reading.pinning import host_memory, page_lock
from voxload.loader.reading.readahead import ReadAhead
from voxload.loader.reading.staging import LEAST_SLOTS, BatchLayout, Memory, StagingRing
from voxload.loader.sampler import GroupSampler, divide
from voxload.loader.stats import StatsRecorder
from voxload.prefetch.meter import Meter
from voxload.prefetch.order.source import OrderSource
from voxload.transforms import Transform

DEFAULT_READERS = 2
"""Reader threads when num_workers is 0: h5py's lock and zarr's own pool make more of little use."""
_PREFETCH_FACTOR = 2
"""Batches read ahead per thread, torch's own default."""
_AHEAD = 1
"""Batches read ahead when num_workers is 0: all threads read one batch together, so one behind it keeps them busy."""


@dataclass(frozen=True, slots=True)
class PipelineBudget:
    """What reading may take."""

    staging: int
    """Most bytes of the buffers read ahead into."""
    cache: Cache | None
    """Where blocks are kept near."""
    device: torch.device | None = None
    """Where batches go, into as many bytes again at most; None leaves them in their slots."""
    keep: int = 1
    """Batches that stay valid there."""
    is_apart: bool = False
    """Whether a process of its own reads."""
    is_clairvoyant: bool = True
    """Whether batches of the next epoch may be read before it begins."""


class Pipeline:
    """Reads one loader's batches, epoch after epoch; used by one thread.

    Parameters
    ----------
    loader
        Whose sampler and arguments it follows; it is not kept alive by this.
    volumes
        What is read.
    budget
        Buffers and tiers.
    transforms
        What is done to each field's volumes.
    cursor
        Knows the number of each epoch, and what a resumed one begins with.
    """

    def __init__(
        self,
        loader: torch.utils.data.DataLoader[Any],
        volumes: VolumeDataset,
        budget: PipelineBudget,
        *,
        transforms: tuple[Transform | None, ...],
        cursor: Cursor,
    ) -> None:
        self.recorder = StatsRecorder()
        self.transforms = transforms
        self.meter = Meter()
        self.prefetcher: Prefetcher | None = None
        self._loader = weakref.ref(loader)
        self._volumes = volumes
        self._budget = budget
        self._device_epochs: DeviceEpochs | None = None
        if budget.device is not None:
            self._device_epochs = DeviceEpochs(budget.device, keep=budget.keep, budget=budget.staging)
        self._ahead: ReadAhead | None = None
        self._process = os.getpid()
        self._is_cached = False
        self._cursor = cursor
        self._growth = None if volumes.following is None else Growth(volumes)
        self._generation = volumes.generation
        self.epoch = cursor.epoch
        """Number of the epoch begun last: the sampler's own, or counted, or as `set_epoch` says."""

    @cached_property
    def agreement(self) -> GroupAgreement:
        """What compares this rank's samples with its group's; made by the first epoch, when the ranks are known."""
        return GroupAgreement(self._volumes.grid, self._volumes.fingerprint)

    def check_free(self) -> None:
        """Refuse to begin an epoch beside one that is under way where samples are dealt; see `Prefetcher`."""
        if self.prefetcher is not None:
            self.prefetcher.check_free()

    def follow(self) -> None:
        """Take up what was appended to a catalogue that is followed, before an epoch begins; called by all ranks.

        Raises UsageError where a state was loaded for another generation while an iterator is under way, and what
        `Growth.take_up` raises.
        """
        if self._growth is None:
            return
        loader, is_busy = self._of, self._has_more
        self._growth.take_up(goes_on=self._cursor.goes_on(loader), is_busy=is_busy)
        divide(loader)  # a state that was loaded may have gone to another generation and back
        if self._volumes.generation == self._generation:
            return
        if is_busy:
            raise UsageError(
                "epoch of a catalogue that is followed",
                found=f"an iterator under way, of generation {self._generation}",
                expected=f"none, where the next one is of {self._volumes.generation}",
                remedy="let go of the iterator first",
            )
        self._renew()

    @property
    def _has_more(self) -> bool:
        """Whether somebody holds an iterator that is under way."""
        is_ahead = self._ahead is not None and self._ahead.has_more
        return is_ahead or (self.prefetcher is not None and self.prefetcher.has_more)

    def _renew(self) -> None:
        """Read the data set as it is now from here on; tiers keep what they have where it only has become longer."""
        before, self._generation = self._generation, self._volumes.generation
        vars(self).pop("_kept", None)
        agreement: GroupAgreement | None = vars(self).get("agreement")
        if agreement is not None and agreement.is_shared:
            agreement.renew(self._volumes.fingerprint)
        ahead, prefetcher = self._ahead, self.prefetcher
        if ahead is not None and self._budget.is_apart:  # that process has a copy of the data set
            self._ahead = None
            ahead.close()
        elif ahead is not None:
            ahead.renew(len(self._volumes), None if self._budget.cache else self._new_source(self._of))
        if prefetcher is None:
            return
        self.prefetcher = None
        try:
            if (self._generation or 0) > (before or 0):
                prefetcher.renew(self._kept, self._new_source(self._of))
                self.prefetcher = prefetcher
        finally:
            if self.prefetcher is None:
                prefetcher.close()

    def begin(self) -> None:
        """Begin an epoch, right before its iterator is made."""
        self.epoch = self._cursor.epoch
        self._is_cached = False
        if not len(self._volumes):
            return
        if self._budget.cache is None:
            self._read_ahead().begin()
            return
        if self.prefetcher is None:
            self.prefetcher = Prefetcher(
                self._of,
                self._kept,
                source=self._new_source(self._of),
                cache=self._budget.cache,
                ring=self._cached_ring,
                threads=self._threads,
                meter=self.meter,
            )
        self.prefetcher.reorder(sampler_of(self._of), first=self._cursor.first_free)
        if not self.prefetcher.is_busy:  # else with another iterator: this one reads for itself
            self.prefetcher.begin(self.epoch)
            self._is_cached = True

    def batches(self, indices: Iterator[Sequence[int]]) -> Batches | None:
        """Return the batches of the epoch begun last; None where there are no samples."""
        if not len(self._volumes):
            return None
        timeout = self._of.timeout or None
        found: Batches
        if self._is_cached and self.prefetcher is not None:
            found = self.prefetcher.epoch(indices, timeout, passed=self._cursor.passed())
        else:
            found = self._read_ahead().epoch(indices, self.epoch, timeout, passed=self._cursor.passed())
        return found if self._device_epochs is None else self._device_epochs.batches(found, self._layout)

    def close(self) -> None:
        """Stop all threads and give back tiers; a further epoch begins with nothing kept."""
        prefetcher, self.prefetcher = self.prefetcher, None
        if prefetcher is not None:
            prefetcher.close()
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
        if self._device_epochs is not None:
            self._device_epochs.close()
        agreement: GroupAgreement | None = vars(self).get("agreement")
        if agreement is not None:
            agreement.close()
        if self._growth is not None:
            self._growth.close()

    @cached_property
    def _kept(self) -> Kept:
        """What the cache keeps; looked at when the first epoch begins."""
        return kept_of(self._volumes, largest_batch(self._of))

    def _read_ahead(self) -> ReadAhead:
        """Return what reads past the cache: threads and slots that all epochs have in common."""
        if self._ahead is None or self._process != os.getpid():  # a forked child has no threads
            loader, self._process = self._of, os.getpid()
            lead = loader.num_workers * (loader.prefetch_factor or _PREFETCH_FACTOR)
            # One batch more where the slot of one is being copied from.
            depth = lead or _AHEAD + (self._device_epochs is not None)
            source = None
            if self._budget.cache is None:
                source = self._new_source(loader)
            reads = self._new_reads(depth)
            self._ahead = ReadAhead(
                reads,
                source,
                samples=len(self._volumes),
                lead=lead or None,
                depth=depth,
                is_augmented=self._volumes.augment is not None,
                is_clairvoyant=self._budget.is_clairvoyant,
            )
        return self._ahead

    def _new_reads(self, depth: int) -> BatchReads:
        """Return threads of this process or another one, and slots for as many batches ahead."""
        threads = self._threads
        if not self._budget.is_apart:
            return BatchReads(self._volumes, partial(self._new_ring, ahead=depth), threads=threads)
        slots = SharedSlots()
        ring = partial(self._new_ring, ahead=depth, memory=slots.memory)
        team = partial(ReaderTeam, self._volumes, slots=slots, threads=threads)
        return BatchReads(self._volumes, ring, threads=threads, others=lambda layout: team(layout=layout))

    def _new_source(self, loader: torch.utils.data.DataLoader[Any]) -> OrderSource:
        return OrderSource(loader, self._volumes.grid, advancing=(GroupSampler,), foretold=self._cursor.foretold)

    @property
    def _of(self) -> torch.utils.data.DataLoader[Any]:
        loader = self._loader()
        if loader is None:
            raise ReferenceError("the DataLoader of this iterator is gone")
        return loader

    @property
    def _threads(self) -> int:
        return self._of.num_workers or DEFAULT_READERS

    def _cached_ring(self, notify: Callable[[object], object]) -> StagingRing:
        """Return slots for batches that come from anywhere, of which some are slow."""
        ahead = self._threads * (self._of.prefetch_factor or _PREFETCH_FACTOR)
        return self._new_ring(notify, ahead, layout=self._kept.layout)

    def _new_ring(
        self,
        notify: Callable[[object], object],
        ahead: int,
        memory: Memory = host_memory,
        *,
        layout: BatchLayout | None = None,
    ) -> StagingRing:
        """Return slots for as many batches as are read ahead."""
        device = self._budget.device
        return StagingRing(
            layout or self._layout,
            budget=self._budget.staging,
            most=ahead + LEAST_SLOTS,
            notify=notify,
            lock=None if device is None else page_lock(with_index(device)),
            memory=memory,
        )

    @property
    def _layout(self) -> BatchLayout:
        return BatchLayout(largest_batch(self._of), self._volumes.layout(0))
