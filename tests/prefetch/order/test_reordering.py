"""Reordering: each shuffle once, never more moved than without, and what groups find counted as they find it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import UsageError
from voxload.prefetch import machines, policies
from voxload.prefetch.events import SourceKind
from voxload.prefetch.line import EpochOrder, Held, Line, Room
from voxload.prefetch.order import reordering
from voxload.prefetch.order.reordering import Shuffles, reorder, shuffle_of
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.simulate import Model, Workload, run
from voxload.prefetch.simulation.machine import Staging

SIZE = 10
MACHINE = replace(machines.load("lassen"), staging=Staging(0, 6, threads=2, decode=float("inf")))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[EpochOrder], Line, Held]:
    """Draw epochs in which samples may be absent or occur twice, rooms that differ, and what is held at the start."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups, samples = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    shape = (groups, draw(st.integers(1, 4)), draw(st.integers(1, 3)))
    orders = []
    for epoch in range(draw(st.integers(1, 6))):
        order = rng.integers(0, samples, shape)
        order[rng.random(shape) < draw(st.sampled_from([0.0, 0.3]))] = -1
        orders.append(EpochOrder(epoch, order))
    rooms = tuple(Room(SIZE * int(rng.integers(0, samples + 1)), 0) for _ in range(groups))
    kept = [rng.permutation(samples)[: room.memory // SIZE] for room in rooms]
    line = Line(np.full(samples, SIZE, np.int64), rooms)
    return orders, line, Held.found(kept, []) if draw(st.booleans()) else Held.nothing()


def moved(orders: list[EpochOrder], line: Line, held: Held, policy: policies.Policy) -> int:
    """Return the bytes that a policy plans from storage and peers, which are no further than three epochs known."""
    state, total = policy.begin(line, held), 0
    for place, order in enumerate(orders):
        placement, state = policy.place(state, order, orders[place + 1 : place + 4])
        taken = placement.bytes_by_source(line.sizes)
        total += taken.storage + taken.peer_memory + taken.peer_disk
    return total


@given(given_=runs(), name=st.sampled_from(["clairvoyant", "lru", "nopfs", "first-touch"]))
def test_each_shuffle_is_used_once_and_no_more_is_moved(given_: tuple[list[EpochOrder], Line, Held], name: str) -> None:
    """For every policy; the same again; what was given stays as it was."""
    orders, line, held = given_
    before = [order.samples.copy() for order in orders]
    policy = policies.named(name)
    chosen = reorder(orders, line, held, policy)
    assert sorted(chosen) == list(range(len(orders)))
    assert reorder(orders, line, held, policy) == chosen
    run_ = [EpochOrder(place, orders[number].samples) for place, number in enumerate(chosen)]
    assert moved(run_, line, held, policy) <= moved(orders, line, held, policy)
    assert all(np.array_equal(order.samples, was) for order, was in zip(orders, before, strict=True))


def found_one_by_one(orders: list[EpochOrder], line: Line, path: tuple[int, ...]) -> int:
    """Return what groups find along a path, of what each used last."""
    total = 0
    for before, after in pairwise(path):
        for group, room in enumerate(line.rooms):
            kept: list[int] = []
            for sample in orders[before].samples[group].ravel().tolist()[::-1]:
                if sample >= 0 and sample not in kept and len(kept) < room.memory // SIZE:
                    kept.append(sample)
            total += len(set(kept) & set(orders[after].samples[group].ravel().tolist()))
    return total


@pytest.mark.parametrize("seed", range(8))
def test_the_path_finds_nearly_as_much_as_the_best(seed: int) -> None:
    """Beside all 720 orders of six epochs, by a count of one sample after the other."""
    orders = list(shuffled_orders(48, 4, batch=2, seed=seed, epochs=6))
    line = Line(np.full(48, SIZE, np.int64), (Room(6 * SIZE, 0),) * 4)
    path = tuple(reordering._path(reordering._finds(orders, line, Held.nothing())))
    all_ = {each: found_one_by_one(orders, line, each) for each in permutations(range(6))}
    assert all_[path] > 0.9 * max(all_.values())
    assert all_[path] > sum(all_.values()) / len(all_)


def test_an_order_that_is_made_for_it_is_found() -> None:
    """Two pairs of epochs that are alike, shuffled apart: each comes behind its like, the one that is held first."""
    rng = np.random.default_rng(3)
    first, second = (rng.permutation(32).reshape(4, 8, 1) for _ in range(2))
    orders = [EpochOrder(place, one) for place, one in enumerate((first, second, first[:, ::-1], second[:, ::-1]))]
    line = Line(np.full(32, SIZE, np.int64), (Room(8 * SIZE, 0),) * 4)
    held = Held.found(list(second.reshape(4, 8)), [])
    assert reorder(orders, line, held, policies.named("lru")) in {
        (1, 3, 0, 2),
        (3, 1, 0, 2),
        (1, 3, 2, 0),
        (3, 1, 2, 0),
    }


@given(shuffles=st.permutations(range(5)), epoch=st.integers(-3, 9))
def test_epochs_behind_the_last_have_their_own(shuffles: list[int], epoch: int) -> None:
    """All in all each number once."""
    known: Shuffles = tuple(shuffles)
    assert shuffle_of(known, epoch) == (shuffles[epoch] if 0 <= epoch < 5 else epoch)
    assert sorted(shuffle_of(known, one) for one in range(10)) == list(range(10))


@pytest.mark.parametrize("model", Model)
def test_simulated_bytes_fall(model: Model) -> None:
    """With a policy that drops what was used longest ago; the same bytes are used."""
    orders = shuffled_orders(64, 4, batch=2, seed=0, epochs=12)
    line = Line(np.full(64, SIZE, np.int64), (Room(16 * SIZE, 0),) * 4)
    taken = {}
    for locality in (None, "epochs"):
        workload = Workload(line, orders, 0.01, locality=locality)
        outcome = run(MACHINE, workload, policies.named("lru"), model=model)
        taken[locality] = outcome.bytes_by_source[SourceKind.STORAGE]
        assert sum(outcome.bytes_by_source.values()) == 64 * 12 * SIZE
    assert taken["epochs"] < taken[None]


def test_a_locality_that_is_unknown_is_refused() -> None:
    """By the simulator too."""
    orders = shuffled_orders(8, 2, batch=1, seed=0, epochs=1)
    with pytest.raises(UsageError, match="locality"):
        Workload(Line(np.full(8, SIZE, np.int64), (Room(0, 0),) * 2), orders, 0.0, locality="epoch")
