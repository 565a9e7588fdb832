"""BatchRead: one batch under way: threads read its samples, and the last of them makes the batch.

Rules of this file:

1. Who asks for a batch that is there takes one object: the thread that read last has stacked targets and added costs.
2. A thread lets go of the slot, of the data set and of what it read before anybody learns that the batch is there: what
   the consumer gives back then is free at once.
3. Of several samples that fail the first one's error counts, as soon as those before it are there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass

import torch

from voxload.data.dataset import VolumeDataset
from voxload.data.layout import FieldLayout
from voxload.loader.batch import Batch, Column
from voxload.loader.reading.sample_reads import SamplePlace, SampleRead, SpareBytes, to_columns
from voxload.readers.protocol import ReadCost, Volume

_AT_ONCE_BYTES = 2**24
"""Samples of larger batches are read one by one, by threads that can be called off between them."""


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
        count = len(plan.indices)
        is_small = count * sum(one.nbytes for one in layout) <= _AT_ONCE_BYTES
        self._is_at_once = fits and (is_small or count == 1) and dataset.knows(plan.indices)
        self.may_help = is_small and self._is_at_once
        """Whether the loop may read it itself: a small one, for it listens to nobody meanwhile."""
        self.tasks = 1 if self._is_at_once else count
        """How many tasks threads have with it: the samples, or all of them at once."""
        self._changed = threading.Condition()  # its lock may be taken again by a finaliser that cancels
        self._found: list[SampleRead | BaseException | None] = [None] * count
        self._active = 0
        self._is_begun = False
        self._left = count
        self.is_cancelled = False
        """Whether nobody wants it any more."""
        self.is_made = False
        """Whether `taken` would not wait for a read."""
        self._batch: Batch | None = None
        self._error: BaseException | None = None
        self._late: list[SampleRead] = []
        if not plan.indices:
            self._make()
            self._let_go()
            self.is_made = True

    def read(self, task: int) -> None:
        """Do one of the `tasks`, once, unless nobody wants it; who does the last makes the batch. Raises nothing."""
        source = self._begun()
        if source is None:
            return
        numbers = range(task, task + 1)
        if self._is_at_once:
            try:
                is_read = self._read_at_once(*source)
            except BaseException as error:  # noqa: BLE001 - raised to who waits for the batch
                self._error, is_read = error, True
            if is_read:
                del source  # rule 2
                self._ended()
                return
            numbers = range(self._left)
            with self._changed:
                self._active += self._left - 1
        for number in numbers:
            try:
                self._found[number] = self._sample(number, *source)
            except BaseException as error:  # noqa: BLE001 - as above
                self._found[number] = error
            if number == numbers[-1]:
                del source
            self._finished()

    def help(self) -> bool:
        """Read a small batch in the loop's thread, which waits for it; False where that is a reader thread's to do.

        It is another one's where it is not small, is being read already, or has to be read sample by sample. An
        interrupt is raised, and leaves the batch to be read.
        """
        source = self._begun() if self.is_left else None
        if source is None:
            return False
        is_read = False
        try:
            is_read = self._read_at_once(*source)
        finally:
            del source
            if is_read:
                self._ended()
            else:
                self._let_others()
        return is_read

    @property
    def is_left(self) -> bool:
        """Whether the loop may read it, and nobody has begun to."""
        return self.may_help and not self._is_begun

    def _begun(self) -> tuple[VolumeDataset, list[Volume]] | None:
        """Begin a task; None where there is nothing to do."""
        with self._changed:
            source = self._source
            if source is None or self.is_cancelled or (self._is_at_once and self._is_begun):
                return None
            self._is_begun = True
            self._active += 1
            return source

    def _let_others(self) -> None:
        """Leave what was begun to somebody else."""
        with self._changed:
            self._active -= 1
            self._is_begun = False
            if self.is_cancelled:
                self._let_go()
                self._changed.notify_all()

    def hand_over(self) -> list[Volume] | None:
        """Let another process read all samples, which then says what became of it; None where none should."""
        with self._changed:
            if self._source is None or self.is_cancelled or self._is_begun:
                return None
            self._is_begun = True
            self._active += 1
            return self._source[1]

    def take_back(self) -> bool:
        """Note that the other process reads no more; tell whether somebody else has to."""
        self._let_others()
        return not self.is_cancelled

    def arrived(self, targets: torch.Tensor | None, cost: ReadCost) -> None:
        """Note that the other process has read all samples into the slot."""
        with self._changed:
            source = self._source
        if source is not None and not self.is_cancelled:
            count = len(self.plan.indices)
            volumes = tuple(torch.from_numpy(array[:count]) for array in source[1])
            self._batch = Batch(self.plan.indices, volumes, targets, cost)
        del source
        self._ended()

    def broke(self, error: BaseException) -> None:
        """Note what reading a sample raised in the other process, which writes no more."""
        if not self.is_cancelled:
            self._error = error
        self._ended()

    def cancel(self) -> None:
        """Let no sample be read any more."""
        with self._changed:
            self.is_cancelled = True
            # Nobody asks for what is there, and the traceback of an error leads to the loader, which would stay.
            self._batch, self._error, self._late = None, None, []
            if not self._active:
                self._let_go()
            self._changed.notify_all()

    def fail(self) -> None:
        """Raise CancelledError to whoever waits: a sample was taken back from the threads, as at their end."""
        with self._changed:
            if not self.is_made:
                self.is_cancelled = self.is_made = True
                self._error = CancelledError()
                self._changed.notify_all()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing writes to its slot, or will."""
        with self._changed:
            return self._is_silent()

    def wait_quiet(self, patience: float | None) -> bool:
        """Wait until nothing writes to its slot; tell whether that came in time."""
        with self._changed:
            return self._changed.wait_for(self._is_silent, patience)

    def wait(self, timeout: float | None) -> bool:
        """Wait until all samples are there; tell whether that came in time."""
        if self.is_made:
            return True
        with self._changed:
            return self._changed.wait_for(lambda: self.is_made, timeout)

    def pop(self) -> Batch | None:
        """Return the batch, once; None where it is not there, or there is something else in its place."""
        if not self.is_made:
            return None
        batch, self._batch = self._batch, None
        return batch

    def taken(self) -> Batch | list[SampleRead]:
        """Return the batch, once, after it is there; or its samples, where some are yet to be read.

        Raises what reading one of them raised.
        """
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:  # a frame that holds an error that holds the frame would stay
                del error
        batch, self._batch = self._batch, None
        return self._late if batch is None else batch

    def _is_silent(self) -> bool:
        return not self._active and (self.is_cancelled or not self._left)

    def _read_at_once(self, dataset: VolumeDataset, arrays: list[Volume]) -> bool:
        """Read all samples by one call; False where they have to be read one by one."""
        indices = self.plan.indices
        slot = [array[: len(indices)] for array in arrays]
        known = dataset.read_again(indices, slot, epoch=self.plan.epoch, repeats=self.plan.repeats)
        if known is None:
            return False
        if not self.is_cancelled:
            targets = [sample.targets for sample in known if sample.targets is not None]
            cost = sum([sample.cost for sample in known], ReadCost())
            volumes = tuple(map(torch.from_numpy, slot))
            self._batch = Batch(indices, volumes, torch.stack(targets) if targets else None, cost)
        return True

    def _sample(self, number: int, dataset: VolumeDataset, arrays: list[Volume]) -> SampleRead:
        own = [array[number] for array in arrays] if self._fits else None
        place = SamplePlace(own, self._layout, self._room, self.plan.epoch, self.plan.repeats[number])
        return place.read(dataset, self.plan.indices[number])

    def _finished(self) -> None:
        """Count a sample; make the batch where it was the last."""
        with self._changed:
            self._left -= 1
            if self._left:
                self._active -= 1
                self._tell_error()
                if self._is_silent():
                    self._let_go()
                    self._changed.notify_all()
                return
        try:
            self._make()
        except BaseException as error:  # noqa: BLE001 - as above
            self._error = error
        self._ended()

    def _ended(self) -> None:
        """Let the batch be known, with nothing held of it."""
        with self._changed:
            self._left = 0
            self._active -= 1
            self._let_go()
            self.is_made = True
            self._changed.notify_all()

    def _tell_error(self) -> None:
        """Let the first sample's error be known where no earlier one is on its way; others may hang for long."""
        first = next((found for found in self._found if not isinstance(found, SampleRead)), None)
        if first is not None and not self.is_cancelled and not self.is_made:
            self._error, self.is_made = first, True
            self._changed.notify_all()
        del first

    def _make(self) -> None:
        """Make the batch of what was found, in this thread."""
        if self.is_cancelled or self.is_made:
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
