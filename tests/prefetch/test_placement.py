"""All policies: rules of placement, purity, and what the storage is read for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.errors import UsageError
from voxload.prefetch.line import DISK, MEMORY, EpochOrder, Held, Ints, Line, Room
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.placement import Placement, validate
from voxload.prefetch.policies import NAMES, named

ARRAYS = ("samples", "owner", "tier", "ready", "keep", "drop_bounds", "drop_steps", "drop_samples")


@dataclass(frozen=True)
class World:
    """What a policy is given."""

    line: Line
    orders: tuple[EpochOrder, ...]
    held: Held
    known: int
    """Epochs ahead that are known."""


def drawn(rng: np.random.Generator, groups: int, samples: int) -> tuple[EpochOrder, ...]:
    """Return orders of any kind: shuffled and padded, or drawn with replacement; with holes."""
    batch, epochs = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    if rng.random() < 0.5:
        return shuffled_orders(samples, groups, batch=batch, seed=int(rng.integers(99)), epochs=epochs)
    steps = int(rng.integers(1, 9))
    orders = []
    for epoch in range(epochs):
        found = rng.integers(0, samples, (groups, steps, batch))
        found[rng.random(found.shape) < rng.choice([0, 0.2])] = -1
        orders.append(EpochOrder(epoch, found))
    return tuple(orders)


def found(rng: np.random.Generator, line: Line) -> Held:
    """Return tiers that an earlier job left, filled at random."""
    tiers: dict[int, list[Ints]] = {MEMORY: [], DISK: []}
    for room in line.rooms:
        left, kept = {MEMORY: room.memory, DISK: room.disk}, {MEMORY: [0][:0], DISK: [0][:0]}
        for sample in rng.permutation(len(line.sizes)).tolist()[: int(rng.integers(0, len(line.sizes) + 1))]:
            tier = int(rng.integers(2))
            if line.sizes[sample] <= left[tier]:
                left[tier] -= int(line.sizes[sample])
                kept[tier].append(sample)
        for tier, samples in kept.items():
            tiers[tier].append(np.array(samples, np.int64))
    return Held.found(tiers[MEMORY], tiers[DISK])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw small lines, with any rooms: none, too small for one block, for some, for all."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups, samples = draw(st.integers(1, 5)), draw(st.integers(1, 24))
    sizes = rng.integers(1, draw(st.sampled_from([2, 12])), samples)
    most = draw(st.sampled_from([1, int(sizes.sum()) // groups + 1, int(sizes.sum())]))
    rooms = tuple(Room(*(int(rng.integers(0, most + 1) * (rng.random() < 0.8)) for _ in "md")) for _ in range(groups))
    line = Line(sizes.astype(np.int64), rooms)
    held = found(rng, line) if draw(st.booleans()) else Held.nothing()
    return World(line, drawn(rng, groups, samples), held, draw(st.sampled_from([0, 1, 9])))


def planned(name: str, world: World) -> list[Placement]:
    """Plan all epochs, validate each, and compare what the policy thinks is kept with what is."""
    policy, placements, held = named(name), [], world.held
    state = policy.begin(world.line, held)
    for number, epoch in enumerate(world.orders):
        placement, state = policy.place(state, epoch, world.orders[number + 1 : number + 1 + world.known])
        assert np.array_equal(placement.samples, epoch.samples)
        held = validate(placement, world.line, held)
        assert contents(held, state.step) == contents(state.held, state.step)
        placements.append(placement)
    return placements


def contents(held: Held, step: int) -> list[tuple[int, ...]]:
    """Return copies in one order, without what differs for none: when they could have been dropped before a step."""
    columns = (held.group, held.sample, held.tier, held.ready, np.maximum(held.free, step))
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def total(placements: Sequence[Placement], line: Line) -> int:
    """Return the bytes read from the storage."""
    return sum(placement.storage_bytes(line.sizes) for placement in placements)


@pytest.mark.parametrize("name", NAMES)
@given(world=worlds())
@settings(max_examples=60)
def test_rules_of_placement_hold(name: str, world: World) -> None:
    """Every placement of every policy is valid, and reads no more than a loader that keeps nothing."""
    placements = planned(name, world)
    most = sum(int(world.line.sizes[each.samples[each.samples >= 0]].sum()) for each in world.orders)
    assert total(placements, world.line) <= most
    if name in {"none", "staging"}:
        assert total(placements, world.line) == most


def columns_of(held: Held) -> list[np.ndarray[tuple[int, ...], np.dtype[np.integer]]]:
    """Return all arrays of what is held."""
    return [held.group, held.sample, held.tier, held.ready, held.free]


@pytest.mark.parametrize("name", NAMES)
@given(world=worlds())
@settings(max_examples=10)
def test_policies_are_pure(name: str, world: World) -> None:
    """Two calls give equal arrays, and change nothing that they were given."""
    policy = named(name)
    state = policy.begin(world.line, world.held)
    before = [column.copy() for column in columns_of(state.held)]
    calls = [policy.place(state, world.orders[0], world.orders[1:]) for _ in range(2)]
    for array in ARRAYS:
        assert np.array_equal(getattr(calls[0][0], array), getattr(calls[1][0], array))
    assert calls[0][1].step == calls[1][1].step == world.orders[0].steps
    assert all(np.array_equal(one, other) for one, other in zip(before, columns_of(state.held), strict=True))


def first_reads(orders: Sequence[EpochOrder], groups: int) -> list[set[int]]:
    """Return, for each group, the samples that it is the first to use, alone or at the same step as others."""
    seen: set[int] = set()
    firsts: list[set[int]] = [set() for _ in range(groups)]
    for epoch in orders:
        for step in epoch.samples.transpose(1, 0, 2):
            for group, batch in enumerate(step.tolist()):
                firsts[group] |= {sample for sample in batch if sample >= 0} - seen
            seen |= set(step.ravel().tolist())
    return firsts


@given(world=worlds(), is_split=st.booleans())
@settings(max_examples=100)
def test_storage_is_read_once_where_rooms_suffice(world: World, is_split: bool) -> None:
    """Each block is read once where groups have room for what they read first, and one block more for two tiers."""
    firsts = first_reads(world.orders, world.line.groups)
    rooms = []
    for samples in firsts:
        need = sum(int(world.line.sizes[sample]) for sample in samples)
        memory = need // 3 if is_split else need
        rooms.append(Room(memory, need - memory + int(world.line.sizes.max()) * is_split))
    line = Line(world.line.sizes, tuple(rooms))
    placements = planned("clairvoyant", replace(world, line=line, held=Held.nothing()))
    assert total(placements, line) == sum(int(line.sizes[sample]) for sample in set().union(*firsts))


@pytest.mark.parametrize("name", NAMES)
def test_rooms_smaller_than_a_block_keep_nothing(name: str) -> None:
    """A tier that is too small for any block stays empty."""
    line = Line(np.full(8, 10, np.int64), (Room(9, 9), Room(0, 0)))
    world = World(line, shuffled_orders(8, 2, batch=2, seed=0, epochs=3), Held.nothing(), 2)
    for placement in planned(name, world):
        assert (placement.keep == -1).all()
        assert (placement.owner == -1).all()


@pytest.mark.parametrize("name", ["clairvoyant", "first-touch", "nopfs", "lru"])
def test_blocks_of_an_earlier_job_are_used(name: str) -> None:
    """What a disk held at the start is not read again by its own group."""
    line = Line(np.ones(6, np.int64), (Room(0, 6),))
    held = Held.found([np.zeros(0, np.int64)], [np.arange(6)])
    world = World(line, shuffled_orders(6, 1, batch=2, seed=3, epochs=2), held, 1)
    for placement in planned(name, world):
        assert placement.bytes_by_source(line.sizes).disk == 6


def test_what_cannot_be_held_is_refused() -> None:
    """More than the room, or another line's samples or groups, raises a usage error."""
    line = Line(np.ones(4, np.int64), (Room(1, 2),))
    none = np.zeros(0, np.int64)
    for held, message in (
        (Held.found([none], [np.arange(3)]), "held: disk of group 0: found 3 bytes, expected at most 2"),
        (Held.found([np.array([4])], [none]), "held: sample"),
        (Held.found([none, np.array([1])], [none, none]), "held: group"),
    ):
        with pytest.raises(UsageError, match=message):
            named("clairvoyant").begin(line, held)
    with pytest.raises(UsageError, match="twice"):
        Held.found([np.array([1])], [np.array([1])])


@pytest.mark.parametrize("order", [np.zeros((2, 1, 1)), np.full((1, 1, 1), 4), np.full((1, 1, 1), -2)])
def test_orders_of_another_line_are_refused(order: Ints) -> None:
    """An order with other groups or samples raises a usage error before anything is planned."""
    line = Line(np.ones(4, np.int64), (Room(1, 2),))
    for name in NAMES:
        policy = named(name)
        with pytest.raises(UsageError, match="order of epoch 7"):
            policy.place(policy.begin(line, Held.nothing()), EpochOrder(7, order.astype(np.int64)), ())


def test_unknown_policies_are_named() -> None:
    """The error lists what there is."""
    with pytest.raises(UsageError, match="clairvoyant, staging, none, lru, shards, first-touch, nopfs"):
        named("belady")
