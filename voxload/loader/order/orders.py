"""Orders: what torch's samplers draw, named so that any place in them can be gone to without drawing the way there.

Rules of this file:

1. Nothing is drawn from a sampler or a generator of the caller's but what torch itself would draw. What is looked at is
   looked at on copies.
2. A start is where an epoch's order begins: a mark of the generator, right before the sampler draws from it. Orders
   that need no generator have none.
3. All of an order is one sequence over all sample groups. A position is a number of samples in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from voxload.errors import UsageError
from voxload.loader.order.generators import GeneratorPosition, GeneratorPositions, generator_at
from voxload.loader.sampler import GroupSampler
from voxload.prefetch.order.reordering import Shuffles, shuffle_of
from voxload.prefetch.order.replays import LISTS, SEEDED, Seeded, copied

SEQUENTIAL = "sequential"
"""Samples 0 to n - 1."""
SHUFFLED = "shuffled"
"""A permutation of all samples, as torch's RandomSampler draws without replacement, and its DistributedSampler."""

Index = TypeVar("Index")


def whole_order(kind: str, start: Mapping[str, Any] | None, samples: int) -> Sequence[int]:
    """Return the order of an epoch, of all groups and not padded.

    Parameters
    ----------
    kind
        SEQUENTIAL or SHUFFLED.
    start
        Where the generator is that a shuffled order is drawn from.
    samples
        Length of the data set.
    """
    if kind == SEQUENTIAL:
        return range(samples)
    if kind != SHUFFLED or start is None:
        raise UsageError("order of the loader's state", found=f"{kind!r} from {start}", expected="a seed")
    order: list[int] = torch.randperm(samples, generator=generator_at(start)).tolist()
    return order


def group_share(order: Sequence[Index], position: int, *, part: int, parts: int, drop_last: bool) -> Sequence[Index]:
    """Return what one of several parts gets of an order from a position on, as torch's DistributedSampler deals it.

    What is left is padded to a multiple of `parts` from the beginning of the order, or cut to one with `drop_last`: at
    position 0, and at any multiple of `parts`, this is torch's own division.
    """
    left = order[position:]
    if drop_last:
        return left[part : len(left) // parts * parts : parts]
    missing = -len(left) % parts
    padded = [*left, *islice(cycle(order), missing)] if missing else left
    return padded[part::parts]


_SEEDS = 2**64
_DEALT = (DistributedSampler.__iter__, GroupSampler.__iter__)
"""How samplers iterate that deal one order to all groups: subclasses that do it otherwise are not known."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What must be equal where one order is to go on with another."""

    kind: str
    """SEQUENTIAL or SHUFFLED, whoever draws it; else the name of torch's sampler, or ``list``."""
    seed: int | None
    """Of the generator or the sampler; None where torch's global generator gives a seed to each epoch."""
    of: str
    """Digest of what else decides: the list, the weights, how many."""


class Order(Protocol):
    """One sampler as it is now; used by one thread."""

    @property
    def identity(self) -> Identity:
        """What it is."""
        ...

    @property
    def parts(self) -> int:
        """How many groups an epoch is dealt to."""
        ...

    @property
    def total(self) -> int:
        """Samples in an epoch, of all groups and not padded."""
        ...

    @property
    def generator(self) -> torch.Generator | None:
        """A generator of the caller's that epochs are drawn from."""
        ...

    @property
    def epoch(self) -> int | None:
        """Number of the epoch that an iterator made now would draw; None where the sampler knows none."""
        ...

    def start(self, marks: GeneratorPositions) -> GeneratorPosition | None:
        """Return where an epoch begins that is drawn now."""
        ...

    def numbered(self, epoch: int) -> GeneratorPosition | None:
        """Return where the epoch of a number begins, of samplers that know no numbers; None of all others."""
        ...

    def rest(self, start: GeneratorPosition | None, position: int, *, is_own: bool) -> Iterable[Any]:
        """Return what is left for this group of the epoch that begins at a start, from a position on.

        With `is_own` the start is one of the caller's generator, which is drawn from as the whole epoch would.
        """
        ...

    def rows(self, start: GeneratorPosition | None, position: int) -> list[Sequence[Any]]:
        """Return what is left for each group, and change nothing."""
        ...


class ListOrder:
    """Samplers that are, or are as good as, lists."""

    parts = 1
    epoch = None
    generator = None

    def __init__(self, listed: Any) -> None:
        if isinstance(listed, SequentialSampler):
            self._listed: Any = range(len(listed))
            self.identity = Identity(SEQUENTIAL, None, "")
        else:
            self._listed = listed
            self.identity = Identity("list", None, _digest(listed))
        self.total = len(self._listed)

    def start(self, marks: GeneratorPositions) -> GeneratorPosition | None:  # noqa: ARG002 - the contract's
        """See Order."""
        return None

    def numbered(self, epoch: int) -> GeneratorPosition | None:  # noqa: ARG002 - the contract's
        """See Order."""
        return None

    def rest(self, start: GeneratorPosition | None, position: int, *, is_own: bool) -> Iterable[Any]:  # noqa: ARG002 - the contract's
        """See Order."""
        return islice(self._listed, position, None)

    def rows(self, start: GeneratorPosition | None, position: int) -> list[Sequence[Any]]:
        """See Order."""
        return [list(self.rest(start, position, is_own=False))]


class DrawnOrder:
    """torch's random samplers."""

    parts = 1
    epoch = None

    def __init__(self, sampler: Seeded) -> None:
        self._sampler = sampler
        self.total = len(sampler)
        self.generator: torch.Generator | None = sampler.generator
        seed = None if self.generator is None else self.generator.initial_seed()
        is_permutation = False
        what: list[Any] = []
        if isinstance(sampler, RandomSampler):
            samples = len(sampler.data_source)
            is_permutation = not sampler.replacement and sampler.num_samples == samples
            what = [samples, sampler.num_samples, sampler.replacement]
        elif isinstance(sampler, WeightedRandomSampler):
            what = [sampler.weights, sampler.num_samples, sampler.replacement]
        else:
            what = [sampler.indices]
        of = "" if is_permutation else _digest(*what)
        self.identity = Identity(SHUFFLED if is_permutation else type(sampler).__name__, seed, of)

    def start(self, marks: GeneratorPositions) -> GeneratorPosition | None:
        """See Order."""
        if self.generator is not None:
            return marks.of(self.generator)
        if not isinstance(self._sampler, RandomSampler):
            return marks.of(torch.default_generator)
        # It seeds a generator of its own from torch's: what it will draw is drawn from a copy first.
        peeked = torch.Generator().set_state(torch.default_generator.get_state())
        return {"seed": int(torch.empty((), dtype=torch.int64).random_(generator=peeked)), "draws": 0}

    def numbered(self, epoch: int) -> GeneratorPosition | None:
        """See Order."""
        seed = torch.initial_seed() if self.generator is None else self.generator.initial_seed()
        return {"seed": (seed + epoch) % _SEEDS, "draws": 0}

    def rest(self, start: GeneratorPosition | None, position: int, *, is_own: bool) -> Iterable[Any]:
        """See Order."""
        generator = generator_at(start or {})
        if not is_own or self.generator is None:
            return islice(copied(self._sampler, generator=generator), position, None)
        self.generator.set_state(generator.get_state())
        return islice(self._sampler, position, None)

    def rows(self, start: GeneratorPosition | None, position: int) -> list[Sequence[Any]]:
        """See Order."""
        return [list(self.rest(start, position, is_own=False))]


class DealtOrder:
    """torch's DistributedSampler and GroupSampler: one order, dealt to all groups."""

    generator = None

    def __init__(self, sampler: DistributedSampler[Any]) -> None:
        self._sampler = sampler
        self.total = len(sampler.dataset)  # type: ignore[arg-type] # sampled data sets have a length
        kind, seed = (SHUFFLED, sampler.seed) if sampler.shuffle else (SEQUENTIAL, None)
        self.identity = Identity(kind, seed, "")

    @property
    def parts(self) -> int:
        """See Order."""
        return self._sampler.num_replicas

    @property
    def epoch(self) -> int:
        """See Order."""
        probe = copied(self._sampler, dataset=(), num_replicas=1, rank=0, num_samples=0, total_size=0)
        iter(probe)  # a class that counts epochs by itself does so here
        return probe.epoch

    def start(self, marks: GeneratorPositions) -> GeneratorPosition | None:  # noqa: ARG002 - the contract's
        """See Order."""
        if not self._sampler.shuffle:
            return None
        return {"seed": self._sampler.seed + shuffle_of(shuffles_of(self._sampler), self.epoch), "draws": 0}

    def numbered(self, epoch: int) -> GeneratorPosition | None:  # noqa: ARG002 - the contract's
        """See Order."""
        return None

    def rest(self, start: GeneratorPosition | None, position: int, *, is_own: bool) -> Iterable[Any]:  # noqa: ARG002 - the contract's
        """See Order."""
        iter(self._sampler)  # one that counts epochs by itself knows then that this one was used
        return self._dealt(whole_order(self.identity.kind, start, self.total), position, self._sampler.rank)

    def rows(self, start: GeneratorPosition | None, position: int) -> list[Sequence[Any]]:
        """See Order."""
        order = whole_order(self.identity.kind, start, self.total)
        return [self._dealt(order, position, part) for part in range(self.parts)]

    def _dealt(self, order: Sequence[Any], position: int, part: int) -> Sequence[Any]:
        return group_share(order, position, part=part, parts=self.parts, drop_last=self._sampler.drop_last)


def order_of(loader: DataLoader[Any]) -> Order | None:
    """Return what is known of the sampler that a loader's batches are made of; None where it is not known."""
    if not is_cut_by_torch(loader):
        return None
    sampler: Any = sampler_of(loader)
    if type(sampler) in SEEDED:
        device = "cpu" if sampler.generator is None else sampler.generator.device.type
        return DrawnOrder(sampler) if device == "cpu" else None
    if isinstance(sampler, DistributedSampler):
        return DealtOrder(sampler) if type(sampler).__iter__ in _DEALT else None
    if type(sampler) in LISTS and not _is_of_integers(sampler):
        return None
    return ListOrder(sampler) if type(sampler) in (SequentialSampler, *LISTS) else None


def shuffles_of(sampler: Any) -> Shuffles:
    """Return the numbers that seed a sampler's epochs where these are reordered; none of others."""
    return sampler.shuffles if isinstance(sampler, GroupSampler) else ()


def go_on_with(sampler: Any, shuffles: Sequence[int]) -> None:
    """Let a sampler's epochs be seeded by the numbers that a state has; raises UsageError where it cannot."""
    if isinstance(sampler, GroupSampler):
        sampler.shuffles = tuple(shuffles)
    elif shuffles:
        raise UsageError(
            "loader's state",
            found=f"epochs that were reordered, and {type(sampler).__name__}",
            expected="a sampler whose epochs can be",
            remedy="leave out sampler and batch_sampler, or pass voxload's GroupSampler",
        )


def is_cut_by_torch(loader: DataLoader[Any]) -> bool:
    """Tell whether batches are cut out of a sampler's order as torch does it, or are single samples."""
    batches: Any = loader.batch_sampler
    return batches is None or (isinstance(batches, BatchSampler) and type(batches).__iter__ is BatchSampler.__iter__)


def sampler_of(loader: DataLoader[Any]) -> Any:
    """Return the sampler that the batches are made of, or what makes batches by itself."""
    batches: Any = loader.batch_sampler
    return loader.sampler if batches is None else getattr(batches, "sampler", batches)


def cut(batches: Any, indices: Iterable[Any]) -> Iterator[Any]:
    """Return the batches that torch's batch sampler makes of indices; the indices where there is none."""
    return iter(indices if batches is None else copied(batches, sampler=indices))


def _is_of_integers(listed: Any) -> bool:
    return isinstance(listed, range) or all(isinstance(index, int | np.integer | torch.Tensor) for index in listed)


def _digest(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        values = np.asarray(part)
        digest.update(f"{values.shape} {values.dtype.kind};".encode())
        digest.update(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:32]
