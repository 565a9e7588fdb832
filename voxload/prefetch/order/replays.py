"""Replays: torch's samplers run again on copies, so that what they will draw is known and they are left as they are.

Rules of this file:

1. A replay runs torch's own `__iter__` on a shallow copy of the sampler that has a generator of its own. A subclass
   is another sampler: of DistributedSampler alone, which takes no generator, those are known that keep its `__iter__`.
2. A state is a value: all that decides what an iterator made now would draw. Equal states draw equal batches.
3. Epochs are taken to be drawn to their end. One that is left early leaves the generator elsewhere: the state that
   the next epoch begins with then differs from the one foretold, which is how it is noticed.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from voxload.prefetch.line import EpochOrder, Ints
from voxload.prefetch.order.batches import Batching, flatten, pack
from voxload.prefetch.order.reordering import Shuffles, shuffle_of

State = TypeVar("State")
AnySampler = TypeVar("AnySampler", bound="Sampler[Any]")
Seeded = RandomSampler | SubsetRandomSampler | WeightedRandomSampler
"""Samplers that draw from a generator of the caller's, if they are given one."""
SEEDED = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
LISTS = (list, tuple, range, np.ndarray, torch.Tensor)
"""What may stand in place of a sampler and can be looked at without changing it."""


class Replay(Protocol[State]):
    """What is known of a sampler; used by one thread."""

    @property
    def is_of_line(self) -> bool:
        """Whether a draw has one row for each group, rather than one for this group alone."""
        ...

    @property
    def patience(self) -> int:
        """How many times in turn a foretold state may be wrong before what is foretold is of no use."""
        ...

    @property
    def reason(self) -> str:
        """Why coming epochs are known."""
        ...

    def begin(self, last: State | None) -> State:
        """Return the state of an iterator made now; `last` is the one that the epoch before began with."""
        ...

    def draw(self, state: State) -> tuple[Ints, State]:
        """Return ``(rows, steps, batch)``, one whole epoch from a state, and the state after it."""
        ...


class ListReplay:
    """Samplers that are, or are as good as, lists: the same in every epoch unless their owner changes them."""

    is_of_line = False
    patience = 1

    def __init__(self, listed: Any, samples: int, *, cut: Batching | None) -> None:
        self._listed = listed
        self._cut = cut
        self._samples = samples
        self.reason = f"{type(listed).__name__}: the same order in every epoch"

    def begin(self, last: tuple[bytes, int] | None) -> tuple[bytes, int]:  # noqa: ARG002 - the contract's
        """Return the batches as bytes, and how wide they are."""
        if self._cut is None:
            packed = pack([tuple(batch) for batch in self._listed], self._samples)
        else:
            packed = self._cut.of(flatten(self._listed, self._samples)[None])[0]
        return packed.tobytes(), packed.shape[1]

    def draw(self, state: tuple[bytes, int]) -> tuple[Ints, tuple[bytes, int]]:
        """Return the batches; nothing changes."""
        packed, width = state
        return np.frombuffer(packed, np.int64).reshape(1, -1, width or 1), state


@dataclass(frozen=True, slots=True)
class Drawing:
    """State of a sampler that draws from a generator."""

    generator: bytes
    is_seed_due: bool
    """Whether the loader draws its workers' seed from the same generator before the samples are drawn."""


class SeededReplay:
    """Samplers with a generator, which may be the loader's own too."""

    is_of_line = False
    patience = 1

    def __init__(self, sampler: Seeded, loader: DataLoader[Any], *, cut: Batching) -> None:
        self._sampler = sampler
        self._loader = weakref.ref(loader)  # which may own this, and goes with its last user
        self._cut = cut
        self._samples = len(loader.dataset)  # type: ignore[arg-type] # map-style data sets have a length
        self._is_kept = loader.persistent_workers and loader.num_workers > 0
        self.reason = f"{type(sampler).__name__}: replayed from its generator, if nothing else draws from that"

    def begin(self, last: Drawing | None) -> Drawing:  # noqa: ARG002 - the contract's
        """Return the generator's state, and whether an iterator is made first: each draws a seed as it is made."""
        loader = self._loader()
        if loader is None:
            raise ReferenceError("the DataLoader of this sampler is gone")
        is_shared = self._sampler.generator is loader.generator
        is_new = not (self._is_kept and loader._iterator is not None)  # noqa: SLF001 - torch has no public word for it
        return Drawing(_state_of(self._sampler.generator), is_shared and is_new)

    def draw(self, state: Drawing) -> tuple[Ints, Drawing]:
        """Return the batches that torch's own code draws from a copy of the generator."""
        generator = torch.Generator()
        generator.set_state(torch.frombuffer(bytearray(state.generator), dtype=torch.uint8))
        if state.is_seed_due:
            torch.empty((), dtype=torch.int64).random_(generator=generator)
        drawn = flatten(copied(self._sampler, generator=generator), self._samples)
        return self._cut.of(drawn[None]), Drawing(_state_of(generator), state.is_seed_due and not self._is_kept)


@dataclass(frozen=True, slots=True)
class Numbered:
    """State of a sampler that shuffles by the number of the epoch."""

    epoch: int
    """The number; 0 where nothing is shuffled."""
    step: int
    """From one epoch to the next."""
    shuffles: Shuffles = ()
    """The numbers that seed epochs, where these are reordered."""


class DistributedReplay:
    """torch's DistributedSampler: one permutation for all groups.

    That the number of the epoch goes up by 1 is a guess, for it is the caller's to set; from the second epoch on it is
    taken to change as it did last: by 0, for example, where `set_epoch` is never called.
    """

    patience = 2

    def __init__(self, sampler: DistributedSampler[Any], samples: int, *, cut: Batching, part: tuple[int, int]) -> None:
        self._sampler = sampler
        self._samples = samples
        self._cut = cut
        self.is_of_line = (sampler.rank, sampler.num_replicas) == part
        self.reason = f"{type(sampler).__name__}: replayed from its seed and epoch, if set_epoch goes on as it did"
        if not sampler.shuffle:
            self.reason = f"{type(sampler).__name__}: the same order in every epoch"

    def begin(self, last: Numbered | None) -> Numbered:
        """Return the number of the epoch that an iterator made now would draw."""
        if not self._sampler.shuffle:
            return Numbered(0, 0)
        probe = copied(self._sampler, dataset=(), num_samples=0, total_size=0)
        iter(probe)  # a class that counts epochs by itself does so here
        shuffles: Shuffles = getattr(self._sampler, "shuffles", ())  # of a GroupSampler
        return Numbered(probe.epoch, 1 if last is None else probe.epoch - last.epoch, shuffles)

    def draw(self, state: Numbered) -> tuple[Ints, Numbered]:
        """Return the batches of all groups, or of this one where the sampler divides among others than the groups."""
        parts, length = self._sampler.num_replicas, self._sampler.total_size
        number = shuffle_of(state.shuffles, state.epoch)
        whole = copied(self._sampler, epoch=number, rank=0, num_replicas=1, num_samples=length)
        drawn = flatten(DistributedSampler.__iter__(whole), self._samples).reshape(-1, parts).T
        rows = drawn if self.is_of_line else drawn[self._sampler.rank, None]
        return self._cut.of(rows), replace(state, epoch=state.epoch + state.step)


def unpredictable(sampler: Any, advancing: Sequence[type[DistributedSampler[Any]]] = ()) -> str:
    """Return why coming epochs of a sampler cannot be known, for people; empty where they can."""
    name = type(sampler).__name__
    if type(sampler) in SEEDED:
        if sampler.generator is None or sampler.generator is torch.default_generator:
            return f"{name} draws from torch's global generator: pass generator=, so that epochs ahead are known"
        return "" if sampler.generator.device.type == "cpu" else f"{name} draws from a generator on a device"
    known: tuple[type[DistributedSampler[Any]], ...] = (DistributedSampler, *advancing)
    if isinstance(sampler, known) and type(sampler).__iter__ in [kind.__iter__ for kind in known]:
        return ""
    return "" if type(sampler) in (SequentialSampler, *LISTS) else f"{name} is not known: it is known as it is drawn"


def replay_of(sampler: Any, loader: DataLoader[Any], *, cut: Batching, part: tuple[int, int]) -> Replay[Any]:
    """Return the replay of a sampler that is not `unpredictable`; `part` is this group and the number of groups."""
    if isinstance(sampler, SEEDED):
        return SeededReplay(sampler, loader, cut=cut)
    samples = len(loader.dataset)  # type: ignore[arg-type] # map-style data sets have a length
    if isinstance(sampler, DistributedSampler):
        return DistributedReplay(sampler, samples, cut=cut, part=part)
    return ListReplay(sampler, samples, cut=cut)


def _state_of(generator: torch.Generator) -> bytes:
    state: torch.Tensor = generator.get_state()
    return state.numpy().tobytes()


def copied(sampler: AnySampler, /, **changes: Any) -> AnySampler:
    """Return a shallow copy with other attributes."""
    made = copy.copy(sampler)
    vars(made).update(changes)
    return made


def shuffled_orders(
    samples: int, groups: int, *, batch: int, seed: int, epochs: int, drop_last: bool = False
) -> tuple[EpochOrder, ...]:
    """Return the orders that voxload.DataLoader draws for sample groups with ``shuffle=True``.

    Parameters
    ----------
    samples, groups, epochs
        How many of each; the epochs are 0 to ``epochs - 1``.
    batch
        Samples in a group's batch.
    seed
        Of the shuffling: the loader takes its generator's, 0 without one.
    drop_last
        Whether samples that do not fill a round of groups or a batch are left out.
    """
    data = cast("Dataset[Any]", range(samples))
    sampler: DistributedSampler[Any] = DistributedSampler(data, groups, 0, seed=seed, drop_last=drop_last)
    replay = DistributedReplay(sampler, samples, cut=Batching(batch, drop_last), part=(0, groups))
    return tuple(EpochOrder(epoch, replay.draw(Numbered(epoch, 1))[0]) for epoch in range(epochs))
