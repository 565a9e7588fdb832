"""OrderSource: which batches every sample group will draw, replayed from the sampler without disturbing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.prefetch.line import EpochOrder, Ints
from voxload.prefetch.order.batches import Batching, is_beginning, pack
from voxload.prefetch.order.replays import (
    LISTS,
    DistributedReplay,
    ListReplay,
    Numbered,
    Replay,
    SeededReplay,
    replay_of,
    unpredictable,
)


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far ahead orders are known."""

    epochs: int | None
    """Epochs of this group, from the one begun last on; None where there is no end to them. May differ among ranks,
    for it follows what happened on this one: nothing that all of them must do together may depend on it."""
    is_of_line: bool
    """Whether other groups' orders are replayed here too, and need no exchange. It never changes, whatever an epoch
    brings, and is equal on all ranks that made their loaders alike."""
    reason: str
    """For people."""


class OrderSource:
    """The orders of the epoch at hand and of those behind it; used by one thread.

    It reads samplers and generators and never changes them, and it is never what the consumer sees: batches come from
    the real sampler, and a wrong order costs what was fetched for it. Per epoch the caller says

    1. `begin_epoch`, right before the epoch's iterator is made;
    2. `observe`, with the batches that the real sampler draws, or the first of them, as soon as they are known. For a
       sampler that cannot be replayed they are all that is known, and only then.

    In between, `ahead` and `own_ahead` may be asked at any time: the real sampler is looked at in `begin_epoch` only.
    Before the first one it is looked at each time, so that a planner may begin before the first iterator is made.

    Parameters
    ----------
    loader
        torch's, or one derived from it, over a map-style data set.
    grid
        The ranks: orders are for its sample groups.
    advancing
        Subclasses of torch's DistributedSampler that choose the epoch by themselves when they are iterated and are
        otherwise as torch's: a copy is iterated to learn which one they would choose.
    foretold
        Returns ``(rows, steps, batch)`` when an epoch begins that somebody has the sampler draw otherwise than it would
        by itself: because it is resumed half-way, or seeded by its number. Rows are groups, or only this one. None
        where the sampler is left to itself; given the length of the data set.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        grid: ProcessGrid,
        *,
        advancing: Sequence[type[DistributedSampler[Any]]] = (),
        foretold: Callable[[int], Ints | None] = lambda _: None,
    ) -> None:
        self._grid = grid
        self._samples = len(loader.dataset)  # type: ignore[arg-type] # map-style data sets have a length
        self._replay, self._why = _find_replay(loader, grid, advancing)
        self._told: _Told | None = None
        self._last: Any = None
        self._misses = 0
        self._observed: Ints | None = None
        self._foretold = foretold
        self._given: Ints | None = None
        self._epoch = -1

    @property
    def epoch(self) -> int:
        """Number of the epoch begun last; -1 before the first."""
        return self._epoch

    @property
    def horizon(self) -> Horizon:
        """How many epochs `own_ahead` can give now, whether `ahead` gives them for all groups, and why."""
        is_of_line = self._grid.groups == 1 or (self._replay is not None and self._replay.is_of_line)
        if self._observed is not None:
            why = f"{self._why}; this epoch was drawn otherwise than foretold" if self._replay else self._why
            return Horizon(1, is_of_line, why)
        if self._replay is None:
            return Horizon(0, is_of_line, self._why)
        if self._misses < self._replay.patience:
            return Horizon(None, is_of_line, self._why)
        return Horizon(1, is_of_line, f"{self._why}; the epoch before went on otherwise")

    def begin_epoch(self) -> bool:
        """Look at the sampler, right before the loader makes an epoch's iterator.

        Returns
        -------
        bool
            Whether all that was told of this epoch and the ones behind it still holds.
        """
        self._epoch += 1
        self._observed = None
        self._given = self._foretold(self._samples)
        if self._replay is None or (self._given is not None and isinstance(self._replay, SeededReplay)):
            # Where its generator will be after this epoch, the sampler does not tell.
            self._observed = None if self._given is None else self._given[0]
            self._told = None
            return self._given is None
        state = self._replay.begin(self._last)
        self._last = state
        if self._epoch and self._told is not None:
            self._told = self._told.rest()
        is_foretold = self._told is not None
        holds = self._told is None or self._told.state == state
        if is_foretold:
            self._misses = 0 if holds else self._misses + 1
        if self._told is None or not holds:
            self._told = _Told(self._replay, state)
        return holds and self._given is None

    def observe(self, batches: Sequence[Sequence[int]]) -> bool:
        """Learn what the real sampler drew for this group in the epoch begun last: all of it, or its beginning.

        Returns
        -------
        bool
            Whether it is as was foretold. Where it is not, nothing but this is known until the next epoch begins.

        Raises
        ------
        UsageError
            When no epoch has begun, or an index is none of the data set.
        """
        if self._epoch < 0:
            raise UsageError("observe", found="no epoch", expected="begin_epoch before it")
        drawn = pack(batches, self._samples)
        if self._replay is not None and self._observed is None:
            if is_beginning(drawn, self.own_ahead(1)[0]):
                return True
            self._misses = self._replay.patience
            self._told = None
        self._observed = drawn
        return self._replay is None

    def ahead(self, count: int) -> tuple[EpochOrder, ...]:
        """Return the orders of all groups, from the epoch begun last on; from the first one before that.

        Fewer than `count` where the horizon is nearer. None where other groups' orders are not known: because the
        horizon is not of the line, and groups have to exchange `own_ahead` and call `assemble`; or because this group
        drew otherwise than was foretold, and what the others drew nobody can tell before the next epoch.
        """
        is_alone = self._grid.groups == 1
        if not is_alone and (self._observed is not None or not self.horizon.is_of_line):
            return ()
        first = max(self._epoch, 0)
        return tuple(EpochOrder(first + place, drawn) for place, drawn in enumerate(self._draws(count)))

    def numbered(self, epochs: Iterable[int]) -> tuple[EpochOrder, ...]:
        """Return the orders of all groups that epochs of some numbers have by themselves; nothing of it is kept.

        Raises
        ------
        UsageError
            When the sampler has no epochs of numbers, or divides among others than the groups.
        """
        if not isinstance(self._replay, DistributedReplay) or not self._replay.is_of_line:
            raise UsageError("epochs by number", found=self._why, expected="a sampler that deals such to all groups")
        return tuple(EpochOrder(epoch, self._replay.draw(Numbered(epoch, 1))[0]) for epoch in epochs)

    def own_ahead(self, count: int) -> tuple[Ints, ...]:
        """Return this group's ``(steps, batch)`` orders, epochs as in `ahead`; -1 where a batch is shorter."""
        row = self._grid.group if self._replay is not None and self._replay.is_of_line else 0
        return tuple(drawn[0 if self._observed is not None else row] for drawn in self._draws(count))

    def _draws(self, count: int) -> list[Ints]:
        """Return up to `count` epochs, each with a row for every group or with this group's only."""
        if self._observed is not None:
            return [self._observed[None]][:count]
        if self._replay is None:
            return []
        if self._epoch < 0:
            state = self._replay.begin(None)
            if self._told is None or self._told.state != state:
                self._told = _Told(self._replay, state)
        if self._told is None:
            return []
        epochs = self.horizon.epochs
        draws = self._told.take(count if epochs is None else min(count, epochs))
        is_given = self._given is not None and len(draws) > 0 and len(self._given) == len(draws[0])
        return [self._given, *draws[1:]] if self._given is not None and is_given else draws


class _Told:
    """Epochs drawn one behind another from a state, each once."""

    def __init__(self, replay: Replay[Any], state: Any) -> None:
        self._replay = replay
        self._states = [state]
        self._draws: list[Ints] = []

    @property
    def state(self) -> Any:
        """What the first epoch begins with."""
        return self._states[0]

    def take(self, count: int) -> list[Ints]:
        """Return the first epochs."""
        while len(self._draws) < count:
            drawn, after = self._replay.draw(self._states[-1])
            drawn.flags.writeable = False
            self._draws.append(drawn)
            self._states.append(after)
        return self._draws[:count]

    def rest(self) -> _Told | None:
        """Return the same without the first epoch; None where nothing was drawn of it."""
        if not self._draws:
            return None
        del self._draws[0], self._states[0]
        return self


def _find_replay(
    loader: DataLoader[Any], grid: ProcessGrid, advancing: Sequence[type[DistributedSampler[Any]]]
) -> tuple[Replay[Any] | None, str]:
    """Return the replay of what the loader draws from, or None, and why."""
    batches: Any = loader.batch_sampler
    sampler: Any = loader.sampler
    cut = Batching(1, drop_last=False)
    if type(batches) in LISTS:
        listed = ListReplay(batches, len(loader.dataset), cut=None)  # type: ignore[arg-type] # map-style data sets have a length
        return listed, listed.reason
    if batches is not None:
        if not isinstance(batches, BatchSampler) or type(batches).__iter__ is not BatchSampler.__iter__:
            return None, f"{type(batches).__name__} is not known: it is known as it is drawn"
        sampler, cut = batches.sampler, Batching(batches.batch_size, batches.drop_last)
    why = unpredictable(sampler, advancing)
    if why:
        return None, why
    replay = replay_of(sampler, loader, cut=cut, part=(grid.group, grid.groups))
    return replay, replay.reason
