"""Dealing: every step keeps its samples and every group its places, and as many as can be lie where they are used."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.errors import UsageError
from voxload.prefetch import policies
from voxload.prefetch.line import EpochOrder, Held, Ints, Line, Room
from voxload.prefetch.order.dealing import deal
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.simulate import Workload


@st.composite
def dealings(draw: st.DrawFn) -> tuple[EpochOrder, Held]:
    """Draw orders with samples that occur more than once, shorter batches, and several copies of a sample."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups, samples = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    order = rng.integers(0, samples, (groups, draw(st.integers(0, 4)), draw(st.integers(1, 4))))
    order[rng.random(order.shape) < draw(st.sampled_from([0.0, 0.3]))] = -1
    share = draw(st.sampled_from([0.0, 0.2, 0.6, 1.0]))
    kept = [np.flatnonzero(rng.random(samples) < share) for _ in range(groups)]
    return EpochOrder(3, order), Held.found(kept, [np.zeros(0, np.int64)] * groups)


def pairs(held: Held) -> set[tuple[int, int]]:
    """Return (group, sample) of what is held."""
    return set(zip(held.group.tolist(), held.sample.tolist(), strict=True))


def hits(samples: Ints, held: Held) -> int:
    """Return how many accesses find their sample in the group's own tiers."""
    there = pairs(held)
    return sum((group, one) in there for group, rows in enumerate(samples.tolist()) for row in rows for one in row)


@given(given_=dealings())
@settings(max_examples=200)
def test_every_step_and_every_group_keep_what_they_had(given_: tuple[EpochOrder, Held]) -> None:
    """The same samples as often, the same places, never fewer hits, the same again; what was given stays as it was."""
    order, held = given_
    before = order.samples.copy()
    dealt = deal(order, held)
    assert dealt.epoch == order.epoch
    assert dealt.samples.shape == before.shape
    assert np.array_equal(dealt.samples < 0, before < 0)
    for step in range(order.steps):
        assert Counter(dealt.samples[:, step].ravel().tolist()) == Counter(before[:, step].ravel().tolist())
    assert hits(dealt.samples, held) >= hits(before, held)
    assert np.array_equal(deal(order, held).samples, dealt.samples)
    assert np.array_equal(order.samples, before)


@given(given_=dealings())
@settings(max_examples=100)
def test_no_dealing_has_more_hits(given_: tuple[EpochOrder, Held]) -> None:
    """Of small steps every dealing is tried."""
    order, held = given_
    for step in range(order.steps):
        rows = order.samples[:, step : step + 1]
        items = rows[rows >= 0].tolist()
        if len(items) > 6:
            continue
        groups = [group for group, row in enumerate(rows[:, 0].tolist()) for one in row if one >= 0]
        there = pairs(held)
        most = max(sum(pair in there for pair in zip(groups, tried, strict=True)) for tried in permutations(items))
        assert hits(deal(EpochOrder(0, rows), held).samples, held) == most


def test_by_hand() -> None:
    """A sample goes where it is kept; one that two keep makes room for one that only the first keeps."""
    order = EpochOrder(0, np.array([[[0, 7], [4, -1]], [[3, 9], [5, 6]]]))
    held = Held.found([np.array([3, 6]), np.array([0, 3, 4, 7])], [np.zeros(0, np.int64)] * 2)
    assert deal(order, held).samples.tolist() == [[[3, 9], [6, -1]], [[0, 7], [5, 4]]]
    assert deal(order, Held.nothing()).samples.tolist() == order.samples.tolist()


def test_a_thousand_groups_that_pass_samples_on() -> None:
    """A way from one group to the next, as long as there are groups, is found without the stack growing with it."""
    groups = 3000
    kept = [np.array([group, group + 1]) for group in range(groups - 1)] + [np.array([groups - 1, groups])]
    order = EpochOrder(0, np.append(np.arange(1, groups), 0)[:, None, None])
    held = Held.found(kept, [np.zeros(0, np.int64)] * groups)
    assert hits(deal(order, held).samples, held) == groups


def test_a_cache_that_holds_all_needs_fewer_peers() -> None:
    """Over whole runs: what every epoch deals is in most cases there, and the storage is read as often as before."""
    line, policy = Line(np.ones(256, np.int64), (Room(64, 0),) * 4), policies.named("clairvoyant")
    orders = shuffled_orders(256, 4, batch=2, seed=1, epochs=4)
    peers, storage = [0, 0], [0, 0]
    for place, deals in enumerate((False, True)):
        state = policy.begin(line, Held.nothing())
        for epoch, order in enumerate(orders):
            chosen = deal(order, state.held) if deals else order
            placement, state = policy.place(state, chosen, orders[epoch + 1 :])
            by_source = placement.bytes_by_source(line.sizes)
            storage[place] += by_source.storage
            peers[place] += by_source.peer_memory
    assert storage == [256, 256]
    assert peers[1] < peers[0] / 2


def test_a_workload_of_an_unknown_locality_is_refused() -> None:
    """By its name."""
    orders = shuffled_orders(4, 2, batch=1, seed=0, epochs=1)
    line = Line(np.ones(4, np.int64), (Room(4, 0),) * 2)
    with pytest.raises(UsageError, match="locality: found 'step'"):
        Workload(line, orders, 1.0, locality="step")
