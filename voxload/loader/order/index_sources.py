"""Index sources: where the indices of one epoch come from, and what says how far they were consumed.

Rules of this file:

1. Known orders are drawn when torch would draw them: with the first batch that is asked for. Others are iterated when
   torch's iterator would iterate them.
2. A source notes behind each batch drawn what a state would need if that batch were the last one delivered.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

from torch.utils.data import DataLoader

from voxload.errors import UsageError
from voxload.loader.order.generators import GeneratorPosition, GeneratorPositions
from voxload.loader.order.orders import SEQUENTIAL, SHUFFLED, Order, cut, is_cut_by_torch, sampler_of
from voxload.loader.order.state import UNKNOWN, LoaderState, OrderToken


@dataclass(frozen=True, slots=True)
class Draws:
    """What a loader draws its batches from."""

    sampler: Any
    """What gives samples, or makes batches by itself."""
    batches: Any
    """What makes batches of them; None where nobody does."""
    is_cut_by_torch: bool
    """Whether batches are made as torch's BatchSampler makes them, or not at all."""

    @classmethod
    def of(cls, loader: DataLoader[Any]) -> Draws:
        """Return those of a loader as it is now."""
        return cls(sampler_of(loader), loader.batch_sampler, is_cut_by_torch(loader))

    @property
    def indices(self) -> Any:
        """What torch's loader iterates."""
        return self.sampler if self.batches is None else self.batches

    @property
    def iterated(self) -> Any:
        """What decides the order: what torch's batch sampler iterates, or what is in its place."""
        return self.sampler if self.is_cut_by_torch else self.indices

    @property
    def name(self) -> str:
        """Class of what decides the order, for people."""
        return type(self.iterated).__name__


class IndexSource(Protocol):
    """One epoch's indices; used by one thread."""

    def open(self) -> Iterator[Any]:
        """Begin to draw; raises UsageError where the sampler does not go on as the state says."""
        ...

    def foretold(self) -> list[Any] | None:
        """Return the samples that each group will get, where the sampler by itself would draw others."""
        ...

    def noted(self, index: Any) -> Any:
        """Return the progress behind a batch that was drawn just now."""
        ...

    def passed(self) -> Iterable[Any] | None:
        """Return this group's indices of the epoch before the place where it goes on; None where not known yet."""
        ...

    def saved(self, progress: Any) -> tuple[int, OrderToken]:
        """Return position and token behind the batch with a progress; None is the beginning."""
        ...


class KnownSource:
    """An epoch of an order that is known.

    Parameters
    ----------
    order, draws
        The sampler.
    marks
        Of the sampler's generator.
    numbered
        The number that seeds the epoch; None where the sampler draws by itself.
    resumed
        Where it goes on; None at its beginning.
    """

    def __init__(
        self,
        order: Order,
        draws: Draws,
        marks: GeneratorPositions,
        *,
        numbered: int | None,
        resumed: LoaderState | None,
    ) -> None:
        self._order = order
        self._draws = draws
        self._marks = marks
        self._first = 0
        self._count = 0
        self._epoch: int | None = order.epoch
        self._is_numbered = numbered is not None
        seeded = None if numbered is None else order.numbered(numbered)
        self._start: GeneratorPosition | None = seeded
        self._is_given = seeded is not None
        self._is_own = order.generator is not None and seeded is None
        if resumed is not None and resumed.order.is_order:
            self._first, self._start = resumed.position, resumed.order.start
            self._is_own, self._is_given = resumed.order.is_own, True
        self._is_open = False

    def foretold(self) -> list[Any] | None:
        """See Source."""
        return self._order.rows(self._start, self._first) if self._is_given else None

    def open(self) -> Iterator[Any]:
        """See Source."""
        self._is_open = True
        self._epoch = self._order.epoch
        if self._is_given:
            left = self._order.rest(self._start, self._first, is_own=self._is_own)
            return cut(self._draws.batches, left)
        self._start = self._order.start(self._marks)
        return iter(self._draws.indices)

    def passed(self) -> Iterable[Any]:
        """See Source. Orders that hold each sample once are not drawn for it."""
        if not self._first or self._order.identity.kind in (SEQUENTIAL, SHUFFLED):
            return ()
        return islice(self._order.rest(self._start, 0, is_own=False), self._first)

    def noted(self, index: Any) -> int:
        """Return the samples drawn for this group."""
        self._count += 1 if self._draws.batches is None else len(index)
        return self._count

    def saved(self, progress: int | None) -> tuple[int, OrderToken]:
        """See Source."""
        order, start = self._order, self._start
        if not (self._is_open or self._is_given) and (self._is_own or order.epoch is not None):
            start = order.start(self._marks)  # as it would be drawn now
        identity = order.identity
        token = OrderToken(
            sampler=self._draws.name,
            kind=identity.kind,
            seed=identity.seed,
            of=identity.of,
            epoch=self._epoch,
            start=start,
            is_begun=True,
            is_own=self._is_own,
            is_numbered=self._is_numbered,
        )
        return min(self._first + order.parts * (progress or 0), order.total), token


@dataclass(frozen=True, slots=True)
class _Progress:
    """Behind a batch of an unknown sampler."""

    batches: int
    drawn: str
    snapshot: Mapping[str, Any] | None
    is_spent: bool


class UnknownSource:
    """An epoch of a sampler that has to be drawn to be known.

    Its position is a number of batches. A sampler, or what it is iterated by, that has ``state_dict`` and
    ``load_state_dict`` is asked for its state behind each batch; another one is drawn again from the beginning of the
    epoch, and what it then draws is compared with what was delivered.

    Parameters
    ----------
    draws
        The sampler.
    epoch
        Its own number of the epoch, where it has one.
    resumed
        Where it goes on; None at its beginning.
    """

    def __init__(self, draws: Draws, *, epoch: int | None, resumed: LoaderState | None) -> None:
        self._draws = draws
        self._epoch = epoch
        self._resumed = resumed
        self._is_cut = draws.is_cut_by_torch and draws.batches is not None
        self._count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._stateful: dict[str, Any] = {}
        self._is_at_end = False
        self._skipped: list[Any] | None = None
        self._start = snapshot_of(draws) if resumed is None else None
        self._iterator = None if self._is_cut else self._iterated()

    def foretold(self) -> list[Any] | None:
        """See Source."""
        return None

    def open(self) -> Iterator[Any]:
        """See Source."""
        if self._iterator is None:
            self._iterator = self._iterated()
        drawn = cut(self._draws.batches, self._ending(self._iterator)) if self._is_cut else self._iterator
        if self._resumed is not None and self._resumed.order.is_spent:
            return iter(())
        if self._resumed is None or self._resumed.position == 0:
            return drawn
        if self._resumed.order.snapshot is not None:
            self._count = self._resumed.position
            return drawn
        self._skipped = []
        for _ in range(self._resumed.position):
            try:
                index = next(drawn)
                self.noted(index)
                self._skipped.extend([index] if self._draws.batches is None else index)
            except StopIteration:
                raise self._otherwise(f"the end of the epoch after {self._count} batches") from None
        if self._digest.hexdigest() != self._resumed.order.drawn:
            raise self._otherwise("other samples")
        return drawn

    def passed(self) -> Iterable[Any] | None:
        """See Source. What a sampler drew that was put to where it was by its own state, nobody knows any more."""
        is_skipping = self._resumed is not None and self._resumed.position and self._resumed.order.snapshot is None
        return self._skipped if is_skipping else ()

    def noted(self, index: Any) -> _Progress:
        """Return the batches drawn, the digest of their samples, and what the samplers say of themselves."""
        self._count += 1
        self._digest.update(repr(_plain(index)).encode())
        is_spent = self._is_at_end and set(self._stateful) == {"sampler"}
        return _Progress(self._count, self._digest.hexdigest(), self._snapshot(), is_spent=is_spent)

    def saved(self, progress: _Progress | None) -> tuple[int, OrderToken]:
        """See Source."""
        token = OrderToken(sampler=self._draws.name, kind=UNKNOWN, epoch=self._epoch, is_begun=True)
        if progress is None and self._resumed is not None:
            last = self._resumed.order
            token = replace(token, drawn=last.drawn, snapshot=last.snapshot, is_spent=last.is_spent)
            return self._resumed.position, token
        if progress is None:  # nothing was delivered: the epoch begins where the sampler stood
            return 0, replace(token, snapshot=self._start)
        token = replace(token, drawn=progress.drawn, snapshot=progress.snapshot, is_spent=progress.is_spent)
        return progress.batches, token

    def _iterated(self) -> Iterator[Any]:
        """Iterate the sampler, from its own state where there is one."""
        sampler = self._draws.iterated
        states = {} if self._resumed is None else self._resumed.order.snapshot or {}
        if "sampler" in states:
            self._load(sampler, states["sampler"])
        iterator: Iterator[Any] = iter(sampler)
        if "iterator" in states:
            self._load(iterator, states["iterator"])
        found = {"sampler": sampler, "iterator": iterator}
        self._stateful = {name: one for name, one in found.items() if _is_stateful(one)}
        return iterator

    def _ending(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Yield the same, and notice the end: a last batch that is not full comes after it."""
        yield from iterator
        self._is_at_end = True

    def _load(self, stateful: Any, state: Any) -> None:
        if not _is_stateful(stateful):
            raise self._otherwise(f"{type(stateful).__name__} without load_state_dict")
        stateful.load_state_dict(copy.deepcopy(state))

    def _snapshot(self) -> Mapping[str, Any] | None:
        states = {name: copy.deepcopy(one.state_dict()) for name, one in self._stateful.items()}
        return states or None

    def _otherwise(self, found: str) -> UsageError:
        position = self._resumed.position if self._resumed is not None else 0
        return UsageError(
            f"{self._draws.name} of the loader's state",
            found=found,
            expected=f"what it drew for {position} batches when the state was saved",
            remedy="make it draw the same again, or give it state_dict and load_state_dict",
        )


def restore(draws: Draws, state: LoaderState) -> None:
    """Put a sampler that is not known to where it was between two epochs."""
    if state.order.is_over and not state.order.is_spent:  # what it does at an epoch's end, it does now
        next(UnknownSource(draws, epoch=None, resumed=replace(state, position=0)).open(), None)
    elif state.order.snapshot is not None:
        draws.iterated.load_state_dict(copy.deepcopy(state.order.snapshot["sampler"]))


def snapshot_of(draws: Draws) -> Mapping[str, Any] | None:
    """Return the state of a sampler that gives one, before it is iterated."""
    sampler = draws.iterated
    return {"sampler": copy.deepcopy(sampler.state_dict())} if _is_stateful(sampler) else None


def _is_stateful(one: Any) -> bool:
    return callable(getattr(one, "state_dict", None)) and callable(getattr(one, "load_state_dict", None))


def _plain(index: Any) -> Any:
    """Return an index so that its text says all of it, in every process."""
    if isinstance(index, list | tuple):
        return [_plain(each) for each in index]
    return index.tolist() if hasattr(index, "tolist") else index
