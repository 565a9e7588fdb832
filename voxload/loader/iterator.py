"""Iterators: one epoch, as torch's loader would run it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, Protocol, cast

import torch
from torch._C._autograd import _profiler_enabled
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from voxload.data.dataset import VolumeDataset
from voxload.loader.agreement import Coming, GroupAgreement
from voxload.loader.batch import Batch, Batches, Foreseen
from voxload.loader.collation import Collation
from voxload.loader.order.cursor import EpochRun
from voxload.loader.stats import StatsRecorder
from voxload.transforms import Transform

_STEPS = 4096
"""Steps between two times that reports are added up: some milliseconds of one step in so many."""


class EpochReader(Protocol):
    """What an iterator needs of its loader; used by one thread."""

    recorder: StatsRecorder
    transforms: tuple[Transform | None, ...]
    epoch: int

    @property
    def agreement(self) -> GroupAgreement:
        """What compares this rank's samples with its group's."""
        ...

    def begin(self) -> None:
        """Begin an epoch, right before its iterator is made and the sampler is touched."""
        ...

    def batches(self, indices: Iterator[Sequence[int]]) -> Batches | None:
        """Return the batches of the epoch begun last; None where there are none."""
        ...


class VolumeIterator(_BaseDataLoaderIter):
    """One epoch over a VolumeDataset; used by one thread."""

    def __init__(self, loader: torch.utils.data.DataLoader[Any], reader: EpochReader) -> None:
        reader.begin()
        super().__init__(loader)
        self._loader = loader  # whose end ends its cache: an iterator of a nameless loader keeps it
        self._reader = reader
        self._begin()

    def _begin(self) -> None:
        data = cast("VolumeDataset", self._loader.dataset)
        self._volumes = data.volumes
        self._deliver = Collation(
            self._collate_fn,
            self._auto_collation,
            self._reader.transforms,
            pin_memory=self._pin_memory,
            pin_memory_device=self._pin_memory_device,
            item=data.item_transform,
            data=data,
            parting=None if data.parting is None else data.parting.at(self._reader.epoch),
        )
        # Made by functions in C, which know no iterator: that would otherwise hold itself alive.
        drawn: Iterator[Sequence[int]] = (
            map(list, self._sampler_iter) if self._auto_collation else zip(self._sampler_iter, strict=False)
        )
        self._ahead: Batches = self._reader.batches(drawn) or _Nothing()
        self._is_shared = self._reader.agreement.is_shared
        self._delivered: float | None = None
        self._step = 0

    def leave(self) -> None:
        """Give up what is left of the epoch."""
        self._ahead = _Nothing()

    def _reset(self, loader: torch.utils.data.DataLoader[Any], first_iter: bool = False) -> None:
        """Start the next epoch with the same iterator, as persistent workers ask for."""
        self.leave()  # its slots are the next epoch's
        self._reader.begin()
        super()._reset(loader, first_iter)
        self._begin()

    def __next__(self) -> Any:
        """Return the next batch, marked in torch's profiles while one records: marking takes as long as all else."""
        if _profiler_enabled() or self._sampler_iter is None:
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _next_data(self) -> Any:
        """Return the next batch, checked against the other ranks of the group.

        The loop waits meanwhile, with caches that are its own by then: each call of a function costs microseconds.
        """
        asked = perf_counter()
        ahead, recorder = self._ahead, self._reader.recorder
        worked = None if self._delivered is None else asked - self._delivered
        self._delivered = None
        before = ahead.seconds_on_device
        try:
            batch = ahead.next()
        finally:
            # It counts as delivered from here on, whatever becomes of it.
            self._sampler_iter.reached(ahead.taken)
            on_device = ahead.seconds_on_device - before
            if worked is not None:  # waiting for the device is its work on the batches before
                recorder.report(worked + on_device)
        agreeing = self._agreed(batch) if self._is_shared else 0.0
        if batch is None:
            self._sampler_iter.finish()
            raise StopIteration
        deliver = self._deliver
        if deliver.is_plain and batch.is_even and not self._volumes.are_packed:
            data: Any = [*batch.volumes] if batch.targets is None else [*batch.volumes, batch.targets]
        else:
            data = deliver(batch)
        self._step += 1
        if self._is_shared:
            self._announce(ahead)
        self._delivered = delivered = perf_counter()
        stall = delivered - asked - agreeing - on_device
        recorder.report((asked, stall, len(batch.indices), batch.nbytes, batch.cost))
        if self._step % _STEPS == 0:
            recorder.add_up()
        return data

    def _agreed(self, batch: Batch | None) -> float:
        """Compare a batch with the other ranks'; return the seconds that it took, in which nobody waits for data."""
        begun = perf_counter()
        self._reader.agreement.check(Coming(None if batch is None else batch.indices, self._step))
        return perf_counter() - begun

    def _announce(self, ahead: Batches) -> None:
        """Tell the other ranks what comes next, while the loop works."""
        coming = ahead.foreseen()
        if coming is not None:
            self._reader.agreement.announce(Coming(coming.indices, self._step))


class _Nothing:
    """See Batches: those of a data set without samples."""

    taken = 0
    seconds_on_device = 0.0

    def next(self) -> None:
        """See Batches."""

    def ready(self) -> bool:
        """See Batches."""
        return True

    def foreseen(self) -> Foreseen:
        """See Batches."""
        return Foreseen(None)


class _Counted(_BaseDataLoaderIter):
    """An iterator that tells its run of indices how far it is."""

    def _next_data(self) -> Any:
        run = self._sampler_iter
        if not isinstance(run, EpochRun):  # a subclass of the loader iterates something else
            return super()._next_data()
        try:
            return super()._next_data()
        except StopIteration:
            run.reached(self._passed(run))
            run.finish()
            raise
        finally:
            run.reached(self._passed(run))

    def _passed(self, run: EpochRun) -> int:
        """Return how many batches were delivered, or raised in their place."""
        return run.drawn


class CountedIterator(_Counted, _SingleProcessDataLoaderIter):
    """torch's iterator without worker processes."""


class CountedWorkersIterator(_Counted, _MultiProcessingDataLoaderIter):
    """torch's iterator with worker processes."""

    def _passed(self, run: EpochRun) -> int:  # noqa: ARG002 - what is drawn is ahead of what is delivered
        return self._rcvd_idx


def counted_iterator(loader: torch.utils.data.DataLoader[Any]) -> _BaseDataLoaderIter:
    """Return the iterator that torch's loader would make, under torch's name for it in profiles."""
    if loader.num_workers == 0:
        made: _BaseDataLoaderIter = CountedIterator(loader)
    else:
        loader.check_worker_number_rationality()
        made = CountedWorkersIterator(loader)
    made._profile_name = f"enumerate(DataLoader)#{type(made).__mro__[2].__name__}.__next__"  # noqa: SLF001 - torch's own
    return made
