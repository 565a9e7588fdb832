"""SampleRead: one sample, read into its place of a slot or, where it does not fit, into memory of its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from voxload.data.dataset import VolumeDataset
from voxload.data.layout import FieldLayout, new_blocks
from voxload.loader.batch import Column, Ragged, unequal_blocks
from voxload.readers.protocol import NOTHING, ReadCost, Volume


class SpareBytes:
    """Bytes that may be taken beside the slots; safe to use from many threads, and never waits.

    Parameters
    ----------
    budget
        All of them.
    """

    def __init__(self, budget: int) -> None:
        self._free = budget
        self._lock = threading.RLock()  # a finaliser may give back in the middle of a call

    def take(self, nbytes: int) -> bool:
        """Tell whether so many were free, and take them."""
        with self._lock:
            if nbytes > self._free:
                return False
            self._free -= nbytes
            return True

    def give_back(self, nbytes: int) -> None:
        """Return bytes that were taken."""
        with self._lock:
            self._free += nbytes


@dataclass(slots=True, weakref_slot=True)
class SampleRead:
    """One sample, read; or, where there was no room, to be read once it is wanted."""

    index: int
    """The sample."""
    epoch: int
    """For which it is augmented."""
    repeat: int
    """How often it was drawn before in that epoch."""
    layout: tuple[FieldLayout, ...]
    """Its blocks."""
    volumes: Sequence[Volume] | None = field(repr=False)
    """Memory of its own; None where it is in its slot, or yet to be read."""
    is_apart: bool
    """Whether it is not in a slot."""
    cost: ReadCost
    """What it took of the storage."""
    targets: torch.Tensor | None
    """Its targets."""

    @property
    def is_late(self) -> bool:
        """Whether it is yet to be read."""
        return self.is_apart and self.volumes is None

    def finished(self, dataset: VolumeDataset) -> SampleRead:
        """Return it with its blocks; raises what reading raises."""
        return _apart(dataset, self.index, self.epoch, self.repeat, self.layout) if self.is_late else self


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """Where a sample goes; used by one thread."""

    volumes: list[Volume] | None
    """Its part of a slot; None where the slot has none left for it."""
    expected: tuple[FieldLayout, ...]
    """What fits there."""
    room: SpareBytes
    """For what does not."""
    epoch: int
    """For which samples are augmented."""
    repeat: int
    """How often the sample was drawn before in that epoch."""

    def read(self, dataset: VolumeDataset, index: int) -> SampleRead:
        """Read a sample; raises what reading raises."""
        if self.volumes is not None and dataset.knows((index,)):
            slot = [volume[None] for volume in self.volumes]
            known = dataset.read_again((index,), slot, epoch=self.epoch, repeats=(self.repeat,))
            if known is not None:
                sample = known[0]
                return self._made(index, self.expected, is_apart=False, cost=sample.cost, targets=sample.targets)
        own, fits = self.volumes, self.expected
        layout, read = dataset.read_first(
            index, lambda layout: own if layout == fits else None, epoch=self.epoch, repeat=self.repeat
        )
        if read is not None:
            return self._made(index, layout, is_apart=False, cost=read.cost, targets=read.targets)
        nbytes = sum(one.nbytes for one in layout)
        if not self.room.take(nbytes):
            return self._made(index, layout, is_apart=True)
        try:
            found = _apart(dataset, index, self.epoch, self.repeat, layout)
        except BaseException:
            self.room.give_back(nbytes)
            raise
        weakref.finalize(found, self.room.give_back, nbytes).atexit = False
        return found

    def _made(
        self,
        index: int,
        layout: tuple[FieldLayout, ...],
        *,
        is_apart: bool,
        cost: ReadCost = NOTHING,
        targets: torch.Tensor | None = None,
    ) -> SampleRead:
        return SampleRead(index, self.epoch, self.repeat, layout, None, is_apart=is_apart, cost=cost, targets=targets)


def to_columns(
    dataset: VolumeDataset, reads: Sequence[SampleRead], samples: Sequence[Sequence[Volume]]
) -> tuple[Column, ...]:
    """Return a batch's blocks field by field; those of a single sample, or of unequal ones, are not copied."""
    first = reads[0].layout
    columns = zip(*samples, strict=True)
    other = next((read for read in reads if read.layout != first), None)
    if other is not None:
        refusal = partial(unequal_blocks, dataset.sample_ids[other.index], other.layout, first)
        return tuple(Ragged(tuple(map(torch.from_numpy, column)), refusal) for column in columns)
    return tuple(
        torch.from_numpy(column[0][None]) if len(column) == 1 else torch.from_numpy(np.stack(column))
        for column in columns
    )


def _apart(dataset: VolumeDataset, index: int, epoch: int, repeat: int, layout: tuple[FieldLayout, ...]) -> SampleRead:
    """Read a sample into memory of its own."""
    volumes = new_blocks(layout)
    cost = dataset.read_into(index, volumes, epoch=epoch, repeat=repeat)
    targets = dataset.read_targets(index)
    return SampleRead(index, epoch, repeat, layout, volumes, is_apart=True, cost=cost, targets=targets)
