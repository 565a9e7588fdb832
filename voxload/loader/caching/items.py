"""Items: which units a step's samples are made of, and how a slot is filled with them.

Three numbers say what a sample of an epoch is: its index, the number that the epoch is augmented for, and how often the
sample was drawn before in it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from voxload.cache.protocol import BlockKey, Tier
from voxload.data.dataset import VolumeDataset
from voxload.loader.batch import Batch
from voxload.prefetch.events import Part
from voxload.prefetch.execution.resources import Arrival, Filling
from voxload.prefetch.line import Ints
from voxload.readers.protocol import ReadCost, Volume


@dataclass(frozen=True, slots=True)
class EpochItems:
    """The samples of one group's epoch."""

    samples: Ints
    """``(steps, batch)``; -1 where a batch is shorter."""
    number: int
    """For which it is augmented."""
    repeats: Ints
    """How often each was drawn before in the epoch, ``(steps, batch)``."""


class BatchFilling(Filling, Protocol):
    """A filling of which a batch can be made."""

    def batch(self, indices: tuple[int, ...]) -> Batch:
        """Return the batch once all of it is there."""
        ...


class Items(Protocol):
    """How items are made of units; methods are for one thread, and fillings for many."""

    @property
    def samples(self) -> int:
        """How many there are."""
        ...

    @property
    def are_drawn(self) -> bool:
        """Whether an epoch's number and a sample's repeats decide which units it is made of."""
        ...

    @property
    def are_searched(self) -> bool:
        """Whether labels of a sample are read to know which units it is made of."""
        ...

    def rows(self, epoch: EpochItems) -> Ints:
        """Return the units of each step, ``(steps, most of one)``; -1 behind the last. Every step has one or more."""
        ...

    def expect(self, first_step: int, epoch: EpochItems) -> None:
        """Learn the samples of the steps from one on; those that were expected from it on are forgotten."""
        ...

    def filling(self, arrays: list[Volume]) -> BatchFilling:
        """Return what fills a slot."""
        ...


class KnownTargets:
    """The targets of samples, which are read once; safe to use from many threads.

    Where they stand in the samples' files, a block that comes from a tier would open its file for them in every epoch.
    A few numbers a sample are small beside any block.
    """

    def __init__(self, data: VolumeDataset) -> None:
        self._data = data
        self._known: dict[int, torch.Tensor | None] = {}

    def of(self, sample: int) -> torch.Tensor | None:
        """Return a sample's targets."""
        if not self._data.target_names:
            return None
        if sample not in self._known:
            self._known[sample] = self._data.read_targets(sample)
        return self._known[sample]


class SampleItems:
    """Items that are units themselves; see Items."""

    are_drawn = are_searched = False

    def __init__(self, data: VolumeDataset) -> None:
        self.samples = len(data)
        self._targets = KnownTargets(data)

    def rows(self, epoch: EpochItems) -> Ints:
        """See Items."""
        return epoch.samples

    def expect(self, first_step: int, epoch: EpochItems) -> None:
        """See Items: a unit's place in its row is a sample's place in the batch."""

    def filling(self, arrays: list[Volume]) -> BatchFilling:
        """See Items."""
        return _Places(arrays, self._targets)


class _Places:
    """A slot in which each unit has a place of its own."""

    def __init__(self, arrays: list[Volume], targets: KnownTargets) -> None:
        self.arrivals: dict[int, Arrival] = {}
        self._arrays, self._targets = arrays, targets
        self._found: dict[int, torch.Tensor | None] = {}

    def begin(self, step: int) -> None:
        """See Filling."""

    def at(self, part: Part) -> Sequence[Volume]:
        """See Filling."""
        return [array[part.place] for array in self._arrays]

    def whole(self, part: Part) -> Sequence[Volume] | None:
        """See Filling."""
        return self.at(part)

    def arrived(self, part: Part, arrival: Arrival) -> None:
        """See Filling."""
        self._found[part.place] = self._targets.of(part.sample)
        self.arrivals[part.place] = arrival

    def take_from(self, part: Part, tier: Tier, keys: Sequence[BlockKey]) -> bool:  # noqa: ARG002 - all of it is wanted
        """See Filling."""
        return False

    def read_wanted(self, part: Part) -> ReadCost | None:  # noqa: ARG002 - all of it is
        """See Filling."""
        return None

    def again(self) -> Filling:
        """See Filling."""
        return _Places(self._arrays, self._targets)

    def batch(self, indices: tuple[int, ...]) -> Batch:
        """See BatchFilling."""
        count = len(indices)
        targets = [found for place in range(count) if (found := self._found[place]) is not None]
        return Batch(
            indices=indices,
            volumes=tuple(torch.from_numpy(array[:count]) for array in self._arrays),
            targets=torch.stack(targets) if targets else None,
            cost=sum((self.arrivals[place].cost for place in range(count)), ReadCost()),
        )


class ExpectedSteps:
    """The samples of coming steps; `of` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: deque[tuple[int, EpochItems]] = deque()  # each with its first step

    def expect(self, first_step: int, epoch: EpochItems) -> None:
        """Learn those of an epoch; see `Items.expect`."""
        with self._lock:
            while self._epochs and self._epochs[-1][0] >= first_step:
                self._epochs.pop()
            self._epochs.append((first_step, epoch))
            while len(self._epochs) > _KEPT:
                self._epochs.popleft()

    def of(self, step: int) -> tuple[tuple[int, int, int], ...]:
        """Return (sample, number, repeat) of each item of a step."""
        with self._lock:
            first, epoch = next(pair for pair in reversed(self._epochs) if pair[0] <= step)
        samples, repeats = (array[step - first].tolist() for array in (epoch.samples, epoch.repeats))
        pairs = zip(samples, repeats, strict=True)
        return tuple((sample, epoch.number, repeat) for sample, repeat in pairs if sample >= 0)


_KEPT = 8
"""Stretches of steps that are remembered: the one at hand, the next, and as many as may be cut short between."""


def repeats_of(samples: Ints, before: Sequence[int] = ()) -> Ints:
    """Return how often each of a group's samples ``(steps, batch)`` was drawn before it, there or in `before`; pure.

    >>> repeats_of(np.array([[1, 2], [1, -1], [2, 1]]), [2]).tolist()
    [[0, 1], [1, 0], [2, 2]]
    """
    flat = np.concatenate([np.asarray(before, np.int64), samples.reshape(-1)])
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(flat) else order
    counts = np.empty(len(flat), np.int64)
    counts[order] = np.arange(len(flat)) - np.repeat(begins, np.diff(np.append(begins, len(flat))))
    found = counts[len(before) :].reshape(samples.shape)
    return np.where(samples < 0, 0, found)
