"""Cursor: where a loader is in its epochs, counted by what was delivered.

Rules of this file:

1. What is drawn and not delivered, because it was read ahead, does not count.
2. The iterator made last counts. A state that was loaded counts from then on, and the next iterator goes on from it.
3. The position is one over all sample groups: this group's samples times the groups, for all are at the same batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset

from voxload.data.dataset import VolumeDataset
from voxload.errors import InternalError, UsageError
from voxload.loader.order.generators import GeneratorPositions, generator_at
from voxload.loader.order.index_sources import Draws, IndexSource, KnownSource, UnknownSource, restore, snapshot_of
from voxload.loader.order.orders import Order, go_on_with, order_of, shuffles_of
from voxload.loader.order.repeats import Passed
from voxload.loader.order.state import UNKNOWN, LoaderState, OrderToken, check_state, digest_of
from voxload.loader.sampler import divide
from voxload.prefetch.line import Ints
from voxload.prefetch.order.batches import Batching, flatten


class EpochRun(Iterator[Any]):
    """One epoch's indices, and how many of their batches were delivered; used by one thread."""

    def __init__(self, source: IndexSource, epoch: int) -> None:
        self.epoch = epoch
        self.drawn = 0
        self.is_over = False
        self._source = source
        self._indices: Iterator[Any] | None = None
        self._undelivered: deque[Any] = deque()
        self._delivered = 0
        self._progress: Any = None

    def __next__(self) -> Any:
        if self._indices is None:
            self._indices = iter(())  # what cannot begin raises once and has then ended, as in torch
            self._indices = self._source.open()
        index = next(self._indices)
        self._undelivered.append(self._source.noted(index))
        self.drawn += 1
        return index

    def reached(self, delivered: int) -> None:
        """Note how many batches of this iterator were delivered, or raised in their place."""
        while self._delivered < delivered and self._undelivered:
            self._progress = self._undelivered.popleft()
            self._delivered += 1

    def finish(self) -> None:
        """Note that the loop came to the end of the epoch."""
        self.is_over = not self._undelivered

    def saved(self) -> tuple[int, OrderToken]:
        """Return position and token behind the last batch delivered."""
        return self._source.saved(self._progress)

    def passed(self) -> Iterable[Any] | None:
        """Return the indices that lie before the place where this goes on; None where they are not known yet."""
        return self._source.passed()


class Indices:
    """What torch's iterators iterate in place of the sampler: each time a new run of the epoch begun last."""

    def __init__(self, draws: Draws, start: Callable[[], EpochRun]) -> None:
        self._draws = draws
        self._start = start

    def __iter__(self) -> EpochRun:
        return self._start()

    def __len__(self) -> int:
        return len(self._draws.indices)


class Cursor:
    """Counts one loader's epochs and batches, and lets them go on elsewhere; used by one thread.

    It is given the loader with each call, and keeps nothing of it but its samplers.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._coming = 0
        self._chosen: int | None = None
        self._is_numbered = False
        self._pending: LoaderState | None = None
        self._expected: int | None = None  # the sampler's own number, for which alone the pending state holds
        self._begun: _Begun | None = None
        self._run: EpochRun | None = None
        self._marks = GeneratorPositions()
        self._digest: tuple[Any, int | None, str] | None = None

    def __reduce__(self) -> tuple[type[Cursor], tuple[()]]:
        """Return a copy as one that has begun nothing."""
        return Cursor, ()

    def goes_on(self, loader: DataLoader[Any]) -> bool:
        """Tell whether an iterator made now would go on half-way in an epoch."""
        state = self._pending
        if state is None or not state.position or self._chosen not in (None, state.epoch):
            return False
        return _own_epoch(order_of(loader), Draws.of(loader)) == self._expected

    def begin(self, loader: DataLoader[Any]) -> None:
        """Begin an epoch, right before its iterator is made."""
        order, draws = order_of(loader), Draws.of(loader)
        own = _own_epoch(order, draws)
        resumed, self._pending = self._pending, None
        if resumed is not None and (own != self._expected or self._chosen not in (None, resumed.epoch)):
            resumed = None
        numbers = (own, self._chosen, None if resumed is None else resumed.epoch, self._coming)
        self.epoch = next(number for number in numbers if number is not None)
        self._coming, self._chosen = self.epoch + 1, None
        if resumed is not None and (resumed.order.is_over or not resumed.order.is_begun):
            _restore(resumed, order, draws)
            resumed = None
        numbered = self.epoch if self._is_numbered else None
        self._begun = _Begun(order, draws, self._marks, numbered=numbered, epoch=self.epoch, own=own, resumed=resumed)

    @property
    def first_free(self) -> int:
        """Number of the first epoch whose order may still be chosen: that begun last, or behind it if it goes on."""
        return self.epoch + (self._begun is not None and self._begun.is_resumed)

    def foretold(self, samples: int) -> Ints | None:
        """Return ``(rows, steps, batch)``: the epoch begun last, where its sampler by itself would draw another.

        There is a row for each group, or one where the sampler deals to none; -1 behind the end of a shorter batch.
        """
        return None if self._begun is None else self._begun.foretold(samples)

    def indices(self, loader: DataLoader[Any]) -> Indices:
        """Return what the iterators of the epoch begun last draw from."""
        if self._begun is None:
            self.begin(loader)
        return Indices(Draws.of(loader), self._start)

    def passed(self) -> Passed:
        """Return what says which indices lie before the place where the iterator made last goes on."""
        return tuple if self._run is None else self._run.passed

    def choose(self, loader: DataLoader[Any], epoch: int) -> None:
        """Let the next iterator be of the epoch of a number, and the ones behind it go on from there."""
        _set_epoch(loader, epoch, epoch)
        self._chosen, self._coming = epoch, epoch
        self._is_numbered = True

    def state(self, loader: DataLoader[Any]) -> LoaderState:
        """Return where the loader is."""
        _check_loader(loader)
        if self._pending is not None:
            return self._pending
        run = self._run
        if run is None or run.is_over or self._chosen is not None:
            epoch, token = self._between(loader)
            return self._now(loader, token, epoch=epoch)
        if loader.num_workers > 0 and not loader.in_order and not isinstance(loader.dataset, VolumeDataset):
            raise UsageError(
                "state_dict",
                found="in_order=False",
                expected="batches in the order of the sampler, so that those delivered are its first",
                remedy="leave in_order out, or save between epochs",
            )
        position, token = run.saved()
        return self._now(loader, token, epoch=run.epoch, position=position)

    def load(self, loader: DataLoader[Any], saved: Mapping[str, Any]) -> None:
        """Let the next iterator go on where a state was saved; one that it cannot go on from changes nothing."""
        _check_loader(loader)
        if not saved and isinstance(saved, Mapping):
            self._coming, self._chosen, self._is_numbered, self._pending, self._run = 0, None, False, None, None
            go_on_with(Draws.of(loader).sampler, ())
            return
        state, before = LoaderState.from_dict(saved), _generation(loader)
        _go_to(loader, state.generation)
        order = order_of(loader)
        token = _token(order, Draws.of(loader))
        try:
            check_state(state, self._now(loader, token), None if order is None else order.total)
            go_on_with(Draws.of(loader).sampler, state.order.shuffles)
        except UsageError:
            _go_to(loader, before)
            raise
        _set_epoch(loader, state.epoch if state.order.epoch is None else state.order.epoch, state.epoch)
        self._expected = _own_epoch(order, Draws.of(loader))
        self._pending, self._coming, self._chosen = state, state.epoch, None
        self._is_numbered = state.order.is_numbered

    def _start(self) -> EpochRun:
        if self._begun is None:
            raise InternalError("iterator of a loader", found="no epoch", expected="one that has begun")
        self._run = EpochRun(self._begun.source(), self._begun.epoch)
        return self._run

    def _between(self, loader: DataLoader[Any]) -> tuple[int, OrderToken]:
        """Return number and token of the epoch that an iterator made now would begin."""
        order, draws = order_of(loader), Draws.of(loader)
        own, run = _own_epoch(order, draws), self._run
        epoch = self._coming
        if own is not None and (run is None or own != run.epoch):
            epoch = own
        token = replace(_token(order, draws), epoch=own, is_numbered=self._is_numbered)
        if order is None:
            last = run.saved()[1] if run is not None and run.is_over else None
            if last is not None and last.snapshot is not None:
                return epoch, replace(token, snapshot=last.snapshot, is_over=True, is_spent=last.is_spent)
            return epoch, replace(token, snapshot=snapshot_of(draws))
        seeded = order.numbered(epoch) if self._is_numbered else None
        if seeded is not None:
            return epoch, replace(token, start=seeded, is_begun=True)
        if order.generator is not None:
            return epoch, replace(token, start=order.start(self._marks), is_own=True)
        return epoch, token

    def _now(self, loader: DataLoader[Any], token: OrderToken, *, epoch: int = 0, position: int = 0) -> LoaderState:
        data, generation = loader.dataset, _generation(loader)
        if self._digest is None or self._digest[0] is not data or self._digest[1] != generation:
            self._digest = (data, generation, digest_of(data))
        samples = len(data) if isinstance(data, Sized) else None
        token = replace(token, shuffles=list(shuffles_of(Draws.of(loader).sampler)) or ())
        return LoaderState(self._digest[2], samples, epoch, position, token, generation)


class _Begun:
    """An epoch that has begun: makes a source for each iteration of it."""

    def __init__(
        self,
        order: Order | None,
        draws: Draws,
        marks: GeneratorPositions,
        *,
        numbered: int | None,
        epoch: int,
        own: int | None,
        resumed: LoaderState | None,
    ) -> None:
        self.epoch = epoch
        self._order = order
        self._draws = draws
        self._marks = marks
        self._numbered = numbered
        self._own = own
        self._resumed = resumed
        self.is_resumed = resumed is not None

    def source(self) -> IndexSource:
        """Return the epoch's source, of which nothing is drawn yet."""
        if self._order is None:
            return UnknownSource(self._draws, epoch=self._own, resumed=self._resumed)
        return KnownSource(self._order, self._draws, self._marks, numbered=self._numbered, resumed=self._resumed)

    def foretold(self, samples: int) -> Ints | None:
        """See Cursor."""
        if self._order is None or (self._numbered is None and self._resumed is None):
            return None
        rows, batches = self.source().foretold(), self._draws.batches
        if rows is None:
            return None
        cut = Batching(1, drop_last=False) if batches is None else Batching(batches.batch_size, batches.drop_last)
        try:
            return cut.of(np.stack([flatten(row, samples) for row in rows]))
        except UsageError:  # what is no sample is said when it is drawn
            return None


def _token(order: Order | None, draws: Draws) -> OrderToken:
    """Return what a sampler is, without where it is."""
    if order is None:
        return OrderToken(sampler=draws.name, kind=UNKNOWN)
    return OrderToken(draws.name, order.identity.kind, order.identity.seed, order.identity.of)


def _own_epoch(order: Order | None, draws: Draws) -> int | None:
    """Return the number of the epoch that a sampler would draw now, where it knows one."""
    if order is not None:
        return order.epoch
    found = (getattr(one, "epoch", None) for one in (draws.sampler, draws.batches))
    return next((number for number in found if isinstance(number, int)), None)


def _restore(state: LoaderState, order: Order | None, draws: Draws) -> None:
    """Put what the sampler draws from to where it was between two epochs."""
    if order is None:
        restore(draws, state)
    elif order.generator is not None and state.order.is_own and state.order.start is not None:
        order.generator.set_state(generator_at(state.order.start).get_state())


def _set_epoch(loader: DataLoader[Any], sampler_epoch: int, data_epoch: int) -> None:
    """Tell samplers and data set a number, those that take one."""
    batches: Any = loader.batch_sampler
    told = {id(one): one for one in (loader.sampler, batches, getattr(batches, "sampler", None))}
    for one, epoch in (*((one, sampler_epoch) for one in told.values()), (loader.dataset, data_epoch)):
        set_epoch: Any = getattr(one, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)


def _generation(loader: DataLoader[Any]) -> int | None:
    """Return the generation of the catalogue that a loader's data set follows; None where it follows none."""
    return loader.dataset.generation if isinstance(loader.dataset, VolumeDataset) else None


def _go_to(loader: DataLoader[Any], generation: int | None) -> None:
    """Let a data set that follows its catalogue have the samples of a generation; others are compared as they are."""
    if generation is not None and isinstance(loader.dataset, VolumeDataset) and loader.dataset.following is not None:
        loader.dataset.refresh(generation)
        divide(loader)


def _check_loader(loader: DataLoader[Any]) -> None:
    if isinstance(loader.dataset, IterableDataset):
        raise UsageError(
            "state of the loader",
            found=f"{type(loader.dataset).__name__}, an iterable data set",
            expected="one with indices, whose order can be gone on with",
            remedy="use torchdata's StatefulDataLoader for it",
        )
