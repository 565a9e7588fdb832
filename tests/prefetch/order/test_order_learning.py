"""OrderSource where the guess is wrong or nothing can be told: it notices, says so, and learns."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.loader.sampler import GroupSampler
from voxload.prefetch.order.batches import materialise, pack
from voxload.prefetch.order.source import OrderSource

DATA: Any = range(10)
ALONE = ProcessGrid()


class Mine(Sampler[int]):
    """A sampler that nobody knows, with a count of how often it was iterated."""

    def __init__(self) -> None:
        self.iterations = 0

    def __iter__(self) -> Iterator[int]:
        """Return an order that depends on the count."""
        self.iterations += 1
        return iter([self.iterations, 0, 5])


class Endless(Sampler[list[int]]):
    """Batches without end, in one list that is used again and again."""

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the same list with other contents."""
        batch = [0, 0]
        for step in itertools.count():
            batch[:] = [step % 10, (step + 1) % 10]
            yield batch


class Named(DistributedSampler[int]):
    """A subclass that draws as torch's."""


class Reversed(DistributedSampler[int]):
    """A subclass that draws otherwise than torch's."""

    def __iter__(self) -> Iterator[int]:
        """Return the order backwards."""
        return iter(list(super().__iter__())[::-1])


def _epoch(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: DataLoader(DATA, 2, shuffle=True), "RandomSampler draws from torch's global generator: pass"),
        (lambda: DataLoader(DATA, 2, sampler=SubsetRandomSampler(DATA)), "SubsetRandomSampler draws from"),
        (lambda: DataLoader(DATA, 2, sampler=WeightedRandomSampler([1.0] * 10, 4)), "WeightedRandomSampler draws"),
        (
            lambda: DataLoader(DATA, 2, sampler=RandomSampler(DATA, generator=torch.default_generator)),
            "RandomSampler draws from torch's global",
        ),
        (lambda: DataLoader(DATA, 2, sampler=Mine()), "Mine is not known"),
        (lambda: DataLoader(DATA, 2, sampler=Reversed(DATA, 1, 0)), "Reversed is not known"),
        (lambda: DataLoader(DATA, 2, sampler=GroupSampler(DATA, ALONE, shuffle=True)), "GroupSampler is not known"),
        (lambda: DataLoader(DATA, batch_sampler=BatchSampler(Mine(), 2, drop_last=False)), "Mine is not known"),
        (lambda: DataLoader(DATA, batch_sampler=Endless()), "Endless is not known"),
    ],
)
def test_what_cannot_be_replayed_is_known_as_it_is_drawn(make: Callable[[], DataLoader[Any]], reason: str) -> None:
    """Nothing is told before an epoch is drawn, that epoch then, and the sampler is never touched."""
    source = OrderSource(make(), ALONE)
    for epoch in range(2):
        assert source.begin_epoch()
        assert source.horizon.epochs == 0
        assert source.horizon.reason.startswith(reason)
        assert source.ahead(3) == source.own_ahead(3) == ()
        assert source.observe([[1, 2], [epoch]])
        assert source.horizon.epochs == 1
        assert source.own_ahead(3)[0].tolist() == [[1, 2], [epoch, -1]]
        assert [(order.epoch, order.samples.tolist()) for order in source.ahead(3)] == [
            (epoch, [[[1, 2], [epoch, -1]]])
        ]


def test_an_unknown_sampler_is_not_iterated() -> None:
    """Only the real iterator draws from a sampler of the user's."""
    sampler = Mine()
    source = OrderSource(DataLoader(DATA, 2, sampler=sampler), ALONE)
    source.ahead(3)
    source.begin_epoch()
    source.ahead(3)
    assert sampler.iterations == 0


def test_endless_batches_are_observed_as_far_as_they_are_drawn() -> None:
    """A bound ends the look ahead, more may be observed later, and the stream is the sampler's."""
    source = OrderSource(DataLoader(DATA, batch_sampler=Endless()), ALONE)
    source.begin_epoch()
    drawn, stream = materialise(Endless(), 3)
    source.observe(drawn)
    assert source.own_ahead(1)[0].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert [tuple(batch) for batch in itertools.islice(stream, 5)] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    source.observe([*drawn, (3, 4)])
    assert len(source.own_ahead(1)[0]) == 4


def test_other_groups_generators_are_their_own() -> None:
    """With several groups, a sampler that says nothing of the others gives this group's orders only."""
    grid = ProcessGrid(world_size=3, rank=1)
    loader = DataLoader(DATA, 4, sampler=RandomSampler(DATA, generator=torch.Generator().manual_seed(1)))
    source = OrderSource(loader, grid)
    source.begin_epoch()
    assert source.ahead(2) == ()
    assert not source.horizon.is_of_line
    assert np.array_equal(source.own_ahead(1)[0], pack(_epoch(loader), 10))


def test_a_sampler_over_others_than_the_groups_gives_its_own_part() -> None:
    """A DistributedSampler that divides among other parts than the grid's groups is replayed for itself alone."""
    for groups, is_of_line in ((1, True), (2, False)):
        loader = DataLoader(DATA, 2, sampler=DistributedSampler(DATA, 5, 3, seed=2))
        source = OrderSource(loader, ProcessGrid(world_size=groups))
        source.begin_epoch()
        assert np.array_equal(source.own_ahead(1)[0], pack(_epoch(loader), 10))
        assert source.horizon.is_of_line == is_of_line
        assert len(source.ahead(1)) == is_of_line


def test_steps_of_set_epoch_are_learnt() -> None:
    """A guess that failed is replaced by the step that was seen, with no end to the horizon."""
    sampler: DistributedSampler[int] = DistributedSampler(DATA, 1, 0)
    loader = DataLoader(DATA, 10, sampler=sampler)
    source = OrderSource(loader, ALONE)
    held = []
    for number in (0, 5, 10, 15, 15, 15):
        sampler.set_epoch(number)
        held.append(source.begin_epoch())
        assert source.ahead(2)[0].samples.reshape(-1).tolist() == _epoch(loader)[0]
        assert source.horizon.epochs is None
    assert held == [True, False, True, True, False, True]


def test_steps_without_a_rule_bring_the_horizon_near() -> None:
    """Where the step changes again and again only the epoch at hand is told, until a step holds."""
    sampler: DistributedSampler[int] = DistributedSampler(DATA, 1, 0)
    source = OrderSource(DataLoader(DATA, 10, sampler=sampler), ALONE)
    horizons = []
    for number in (3, 9, 1, 2, 3):
        sampler.set_epoch(number)
        source.begin_epoch()
        source.ahead(2)
        horizons.append(source.horizon)
    assert [horizon.epochs for horizon in horizons] == [None, None, 1, 1, None]
    assert horizons[2].reason.endswith("the epoch before went on otherwise")


def test_an_epoch_left_early_is_noticed() -> None:
    """The generator is then elsewhere: the next epoch is told anew, and those behind it once it went to its end."""
    loader = DataLoader(DATA, 3, shuffle=True, generator=torch.Generator().manual_seed(0))
    source = OrderSource(loader, ALONE)
    assert source.begin_epoch()
    assert len(source.ahead(3)) == 3
    next(iter(loader))
    assert not source.begin_epoch()
    (told,) = source.ahead(3)
    assert np.array_equal(told.samples[0], pack(_epoch(loader), 10))
    assert source.begin_epoch()
    assert len(source.ahead(3)) == 3
    assert np.array_equal(source.own_ahead(1)[0], pack(_epoch(loader), 10))


def test_a_generator_that_others_draw_from_brings_the_horizon_near() -> None:
    """Two loaders over one generator: each epoch is still told right as it begins, and no further."""
    generator = torch.Generator().manual_seed(0)
    loader, other = (DataLoader(DATA, 3, shuffle=True, generator=generator) for _ in range(2))
    source = OrderSource(loader, ALONE)
    for epoch in range(4):
        assert source.begin_epoch() == (epoch == 0)
        orders = source.ahead(3)
        assert len(orders) == (1 if epoch else 3)
        assert np.array_equal(orders[0].samples[0], pack(_epoch(loader), 10))
        list(other)


def test_a_generator_that_is_replaced_is_the_one_to_replay() -> None:
    """A generator of the epoch's own is looked at as the epoch begins; the loader's seed is then not drawn from it."""
    sampler = RandomSampler(DATA, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(DATA, 3, sampler=sampler, generator=sampler.generator)
    source = OrderSource(loader, ALONE)
    for epoch in range(3):
        if epoch:
            sampler.generator = torch.Generator().manual_seed(epoch)
        assert source.begin_epoch() == (epoch == 0)
        assert np.array_equal(source.own_ahead(1)[0], pack(_epoch(loader), 10))


def test_a_subclass_that_draws_as_torchs_is_replayed() -> None:
    """What counts is the method that draws."""
    loader = DataLoader(DATA, 2, sampler=Named(DATA, 2, 1))
    source = OrderSource(loader, ProcessGrid(world_size=2, rank=1))
    source.begin_epoch()
    assert np.array_equal(source.ahead(1)[0].samples[1], pack(_epoch(loader), 10))


def test_a_list_that_its_owner_changes_is_noticed() -> None:
    """A list in a sampler's place, or of batches, is told as it stands when the epoch begins."""
    order = list(DATA)
    batches = [[1, 2, 3], [4], [-1]]
    by_sampler, by_batches = DataLoader(DATA, 4, sampler=order), DataLoader(DATA, batch_sampler=batches)
    sources = [OrderSource(loader, ALONE) for loader in (by_sampler, by_batches)]
    for epoch in range(4):
        if epoch == 2:
            random.Random(1).shuffle(order)
            batches.append([7, 8, 9, 6])
        for source, loader in zip(sources, (by_sampler, by_batches), strict=True):
            assert source.begin_epoch() == (epoch != 2)
            assert np.array_equal(source.ahead(1)[0].samples[0], pack([*loader.batch_sampler], 10))  # type: ignore[misc] # both have one
            assert source.horizon.epochs == (1 if epoch == 2 else None)


def test_a_draw_that_was_not_foretold_replaces_what_was() -> None:
    """Whatever the reason: only what was observed is known then, of this group, until the next epoch begins."""
    grid = ProcessGrid(world_size=2)
    sampler: DistributedSampler[int] = DistributedSampler(DATA, 2, 0)
    loader = DataLoader(DATA, 2, sampler=sampler)
    source = OrderSource(loader, grid)
    source.begin_epoch()
    assert len(source.ahead(3)) == 3
    sampler.set_epoch(4)
    drawn = _epoch(loader)
    assert not source.observe(drawn)
    assert source.ahead(3) == ()
    assert np.array_equal(source.own_ahead(3)[0], pack(drawn, 10))
    assert source.horizon.epochs == 1
    assert source.horizon.is_of_line  # or this rank alone would begin an exchange
    assert "drawn otherwise" in source.horizon.reason
    source.begin_epoch()
    assert np.array_equal(source.ahead(1)[0].samples[0], pack(_epoch(loader), 10))


def test_the_beginning_of_a_draw_is_as_foretold() -> None:
    """The first batches may be observed by themselves; one too many or another one is noticed."""
    loader = DataLoader(DATA, 4, sampler=DATA)
    source = OrderSource(loader, ALONE)
    with pytest.raises(UsageError, match="begin_epoch before it"):
        source.observe([])
    source.begin_epoch()
    assert source.epoch == 0
    assert source.observe([])
    assert source.observe([[0, 1, 2, 3], [4, 5, 6, 7]])
    assert source.observe([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
    assert not source.observe([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0]])
    source.begin_epoch()
    assert not source.observe([[0, 1, 2]])
    source.begin_epoch()
    assert not source.observe([[0, 1, 2, 3, 4]])


def test_what_is_told_before_the_first_epoch_follows_the_sampler() -> None:
    """A caller that sets the epoch after a first look is heard."""
    sampler: DistributedSampler[int] = DistributedSampler(DATA, 1, 0)
    loader = DataLoader(DATA, 10, sampler=sampler)
    source = OrderSource(loader, ALONE)
    source.ahead(2)
    sampler.set_epoch(6)
    assert source.ahead(1)[0].samples.reshape(-1).tolist() == list(sampler)
    assert source.epoch == -1
    assert source.begin_epoch()
    sampler.set_epoch(7)
    assert source.ahead(2)[1].samples.reshape(-1).tolist() == list(sampler)
