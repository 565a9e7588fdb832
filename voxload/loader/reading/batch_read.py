"""BatchRead: one batch under way: threads claim its samples one after the other, and the last makes the batch.

Rules of this file:

1. Who asks for a batch that is there takes one object: the thread that read last has stacked targets and added costs.
2. A thread lets go of the slot, of the data set and of what it read before anybody learns that the batch is there: what
   the consumer gives back then is free at once.
3. Of several samples that fail the first one's error counts, as soon as those before it are there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass

import torch

from voxload.data.dataset import FieldLayout, VolumeDataset
from voxload.loader.batch import Batch, Column
from voxload.loader.reading.sample_reads import SamplePlace, SampleRead, SpareBytes, to_columns
from voxload.readers.protocol import ReadCost, Volume


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What is read."""

    indices: tuple[int, ...]
    """Samples, counted from 0 where they are samples at all."""
    epoch: int
    """For which epoch."""
    repeats: tuple[int, ...]
    """How often each sample was drawn before in it."""


class BatchRead:
    """A batch on its way; safe to use from many threads. Equal to itself alone: the same samples may come twice.

    Parameters
    ----------
    plan
        Its samples.
    dataset
        Where they are read from.
    arrays
        The slot that they go to.
    fits
        Whether the slot has a place for each.
    layout
        What fits into a place.
    room
        For what does not.
    """

    def __init__(
        self,
        plan: BatchPlan,
        dataset: VolumeDataset,
        arrays: list[Volume],
        *,
        fits: bool,
        layout: tuple[FieldLayout, ...],
        room: SpareBytes,
    ) -> None:
        self.plan = plan
        self._source: tuple[VolumeDataset, list[Volume]] | None = (dataset, arrays)
        self._fits, self._layout, self._room = fits, layout, room
        self._changed = threading.Condition(threading.Lock())
        self._found: list[SampleRead | BaseException | None] = [None] * len(plan.indices)
        self._claimed = self._active = 0
        self._left = len(plan.indices)
        self._is_cancelled = self._is_made = False
        self._batch: Batch | None = None
        self._error: BaseException | None = None
        self._late: list[SampleRead] = []
        if not plan.indices:
            self._make()
            self._is_made = True

    def run(self) -> None:
        """Read samples for as long as there are any; for a reader thread."""
        while self._read():
            pass

    def cancel(self) -> None:
        """Let no sample be claimed any more."""
        with self._changed:
            self._is_cancelled = True
            # Nobody asks for what is there, and the traceback of an error leads to the loader, which would stay.
            self._batch, self._error, self._late = None, None, []
            if not self._active:
                self._let_go()
            self._changed.notify_all()

    def cancelled_with(self, task: Future[None]) -> None:
        """Fail where a thread's part was taken back, as at the end of the pool: nobody would read it."""
        if not task.cancelled():
            return
        with self._changed:
            if self._claimed < len(self._found):
                self._is_cancelled = self._is_made = True
                self._error = CancelledError()
                self._changed.notify_all()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing writes to its slot, or will."""
        with self._changed:
            return self._is_silent()

    @property
    def is_made(self) -> bool:
        """Whether `take` would not wait for a read."""
        with self._changed:
            return self._is_made

    def wait_quiet(self, patience: float | None) -> bool:
        """Wait until nothing writes to its slot; tell whether that came in time."""
        with self._changed:
            return self._changed.wait_for(self._is_silent, patience)

    def wait(self, timeout: float | None) -> bool:
        """Wait until all samples are there; tell whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_made, timeout)

    def taken(self) -> Batch | list[SampleRead]:
        """Return the batch, once, after it is there; or its samples, where some are yet to be read.

        Raises what reading one of them raised.
        """
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:  # a frame that holds an error that holds the frame would stay
                del error
        batch, self._batch = self._batch, None
        return self._late if batch is None else batch

    def _is_silent(self) -> bool:
        return not self._active and (self._is_cancelled or self._claimed == len(self._found))

    def _claim(self) -> tuple[int, SamplePlace, VolumeDataset] | None:
        """Return a sample that nobody reads: its number, where it goes and where it comes from."""
        with self._changed:
            if self._source is None or self._is_cancelled or self._claimed == len(self._found):
                return None
            number = self._claimed
            self._claimed += 1
            self._active += 1
            dataset, arrays = self._source
        own = [array[number] for array in arrays] if self._fits else None
        plan = self.plan
        return number, SamplePlace(own, self._layout, self._room, plan.epoch, plan.repeats[number]), dataset

    def _read(self) -> bool:
        """Read a sample, if there is one; who reads the last one makes the batch."""
        claim = self._claim()
        if claim is None:
            return False
        number, place, dataset = claim
        try:
            self._found[number] = place.read(dataset, self.plan.indices[number])
        except BaseException as error:  # noqa: BLE001 - raised to who waits for the batch
            self._found[number] = error
        del claim, place, dataset
        with self._changed:
            self._left -= 1
            if self._left:
                self._active -= 1
                self._tell_error()
                if self._is_silent():
                    self._let_go()
                    self._changed.notify_all()
                return True
        try:
            self._make()
        except BaseException as error:  # noqa: BLE001 - as above
            self._error = error
        with self._changed:
            self._active -= 1
            self._let_go()
            self._is_made = True
            self._changed.notify_all()
        return True

    def _tell_error(self) -> None:
        """Let the first sample's error be known where no earlier one is on its way; others may hang for long."""
        first = next((found for found in self._found if not isinstance(found, SampleRead)), None)
        if first is not None and not self._is_cancelled and not self._is_made:
            self._error, self._is_made = first, True
            self._changed.notify_all()
        del first

    def _make(self) -> None:
        """Make the batch of what was found, in this thread."""
        if self._is_cancelled or self._is_made:
            return
        reads = []
        for found in self._found:
            if isinstance(found, BaseException):
                self._error = found
                return
            if found is not None:
                reads.append(found)
        if any(read.is_late for read in reads):
            self._late = reads
        elif self._source is not None:
            self._batch = made(self.plan.indices, *self._source, reads)

    def _let_go(self) -> None:
        self._source = None
        self._found = [None] * len(self._found)


def made(
    indices: tuple[int, ...], dataset: VolumeDataset, arrays: Sequence[Volume], reads: Sequence[SampleRead]
) -> Batch:
    """Return the batch of samples that were read into a slot, or into memory of their own."""
    targets = [read.targets for read in reads if read.targets is not None]
    return Batch(
        indices=indices,
        volumes=_volumes(dataset, arrays, reads),
        targets=torch.stack(targets) if targets else None,
        cost=sum((read.cost for read in reads), ReadCost()),
    )


def _volumes(dataset: VolumeDataset, arrays: Sequence[Volume], reads: Sequence[SampleRead]) -> tuple[Column, ...]:
    if not any(read.is_apart for read in reads):
        return tuple(torch.from_numpy(array[: len(reads)]) for array in arrays)
    samples = [
        [array[place] for array in arrays] if read.volumes is None else read.volumes for place, read in enumerate(reads)
    ]
    return to_columns(dataset, reads, samples)
