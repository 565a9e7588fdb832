"""What each policy is for, and how near the clairvoyant one comes to the optimum."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.errors import UsageError
from voxload.prefetch.line import EpochOrder, Held, Line, Room
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.placement import Placement, validate
from voxload.prefetch.policies import named
from voxload.prefetch.simulation.bound import fewest_reads


def line_of(samples: int, rooms: Sequence[tuple[int, int]]) -> Line:
    """Return a line of blocks of one byte."""
    return Line(np.ones(samples, np.int64), tuple(Room(*room) for room in rooms))


def plan(name: str, line: Line, orders: Sequence[EpochOrder], known: int = 99) -> list[Placement]:
    """Plan and validate all epochs."""
    policy, held, placements = named(name), Held.nothing(), []
    state = policy.begin(line, held)
    for number, epoch in enumerate(orders):
        placement, state = policy.place(state, epoch, orders[number + 1 : number + 1 + known])
        held = validate(placement, line, held)
        placements.append(placement)
    return placements


def reads(placements: Sequence[Placement], line: Line) -> list[int]:
    """Return the bytes read from the storage, for each epoch."""
    return [placement.storage_bytes(line.sizes) for placement in placements]


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize(("groups", "samples"), [(2, 64), (2, 128), (2, 256), (4, 256), (16, 512)])
@pytest.mark.parametrize("known", [0, 1, 4])
def test_half_the_rooms_read_what_the_optimum_reads(groups: int, samples: int, batch: int, known: int) -> None:
    """Of shuffled epochs nothing can keep more than its rooms from one to the next, and all of that is kept."""
    orders = shuffled_orders(samples, groups, batch=batch, seed=7, epochs=5)
    line = line_of(samples, [(samples // groups // 4, samples // groups // 4)] * groups)
    found = sum(reads(plan("clairvoyant", line, orders, known), line))
    assert found == fewest_reads(line, Held.nothing(), orders).sum() == samples * 3


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(("groups", "samples", "batch"), [(2, 256, 1), (2, 256, 4), (4, 1024, 2), (16, 2048, 4)])
@pytest.mark.parametrize("skew", [0.0, 0.8])
def test_draws_with_replacement_come_near_the_optimum(groups: int, samples: int, batch: int, skew: float) -> None:
    """Of orders with uses near and far the storage is read at most 5 % more than by one cache without rules of time."""
    rng, weights = np.random.default_rng(5), np.arange(1, samples + 1) ** -skew
    shape = (groups, samples // groups // batch, batch)
    orders = [
        EpochOrder(epoch, rng.choice(samples, shape, p=weights / weights.sum()).astype(np.int64)) for epoch in range(5)
    ]
    line = line_of(samples, [(samples // groups // 4, samples // groups // 4)] * groups)
    found, fewest = (
        sum(reads(plan("clairvoyant", line, orders), line)),
        fewest_reads(line, Held.nothing(), orders).sum(),
    )
    assert fewest <= found <= 1.05 * fewest
    for other in ("lru", "shards", "first-touch", "nopfs"):
        assert found < sum(reads(plan(other, line, orders), line))


def test_room_moves_to_where_it_is_wanted() -> None:
    """A group whose room is too small loses what does not fit in the first epoch, and hardly anything later."""
    orders = shuffled_orders(128, 2, batch=1, seed=1, epochs=5)
    line = line_of(128, [(48, 0), (96, 0)])
    first, second, *others = reads(plan("clairvoyant", line, orders), line)
    assert first == 128
    assert second <= 16
    assert sum(others) == 0


def test_nothing_is_swapped_for_what_is_of_no_more_use() -> None:
    """Shuffled epochs store each block that is kept once: to swap it for another one would save no read."""
    orders = shuffled_orders(256, 2, batch=2, seed=2, epochs=5)
    line = line_of(256, [(64, 0)] * 2)
    kept = [int((placement.keep >= 0).sum()) for placement in plan("clairvoyant", line, orders)]
    assert kept == [128, 0, 0, 0, 0]


def test_memory_that_is_left_takes_replicas() -> None:
    """With memory for everything at each group, most blocks that were fetched once come from a group's own."""
    orders = shuffled_orders(64, 2, batch=1, seed=3, epochs=8)
    line = line_of(64, [(64, 0)] * 2)
    sources = [placement.bytes_by_source(line.sizes) for placement in plan("clairvoyant", line, orders)]
    assert [source.storage for source in sources] == [64] + [0] * 7
    assert sources[-1].memory > 56
    assert sources[-1].peer_memory + sources[-1].memory == 64


def test_lru_is_an_lru() -> None:
    """One group with one tier hits what an ordered dictionary of that many entries holds."""
    rng = np.random.default_rng(0)
    orders = [EpochOrder(epoch, rng.integers(0, 12, (1, 40, 1))) for epoch in range(3)]
    kept: OrderedDict[int, None] = OrderedDict()
    for epoch, placement in zip(orders, plan("lru", line_of(12, [(5, 0)]), orders), strict=True):
        for sample, owner in zip(epoch.samples.ravel().tolist(), placement.owner.ravel().tolist(), strict=True):
            assert (owner == 0) == (sample in kept)
            kept.pop(sample, None)
            kept[sample] = None
            if len(kept) > 5:
                kept.popitem(last=False)


def test_lru_knows_of_no_peers() -> None:
    """Whatever is not a group's own comes from the storage."""
    for placement in plan("lru", line_of(32, [(8, 8)] * 4), shuffled_orders(32, 4, batch=1, seed=0, epochs=4)):
        groups = np.arange(4)[:, None, None]
        assert ((placement.owner == -1) | (placement.owner == groups)).all()


def test_shards_belong_to_fixed_groups() -> None:
    """Whoever uses a sample, its group keeps it; in time no sample is read from the storage."""
    orders = shuffled_orders(30, 3, batch=2, seed=4, epochs=24)
    line = line_of(30, [(5, 5)] * 3)
    placements = plan("shards", line, orders)
    for placement in placements:
        at_peers = placement.owner >= 0
        assert (placement.owner[at_peers] == placement.samples[at_peers] % 3).all()
    assert reads(placements, line)[-1] == 0


def test_first_touch_keeps_for_good() -> None:
    """The first reader owns a block while there is room, and nothing is ever dropped."""
    orders = shuffled_orders(32, 2, batch=2, seed=5, epochs=3)
    line = line_of(32, [(12, 0)] * 2)
    placements = plan("first-touch", line, orders)
    assert reads(placements, line) == [32, 8, 8]
    assert (placements[0].keep[:, :6] == 0).all()
    assert all(len(placement.drop_steps) == 0 for placement in placements)


def test_nopfs_keeps_what_a_group_uses_most() -> None:
    """Memory takes the most frequent samples, the disk the next; of equal ones those that are used first."""
    order = np.array([[[3], [1], [1], [2], [3], [1], [0]]])
    line = line_of(4, [(1, 2)])
    (placement,) = plan("nopfs", line, [EpochOrder(0, order)])
    assert placement.keep.ravel().tolist() == [1, 0, -1, 1, -1, -1, -1]
    assert placement.owner.ravel().tolist() == [-1, -1, 0, -1, 0, 0, -1]


@given(st.lists(st.integers(0, 4), max_size=10), st.integers(0, 3))
@settings(max_examples=60)
def test_the_optimum_is_the_optimum(samples: list[int], room: int) -> None:
    """No choice of what to keep reads less than Belady's MIN with bypass."""

    @cache
    def fewest(at: int, kept: frozenset[int]) -> int:
        if at == len(samples):
            return 0
        if samples[at] in kept:
            return fewest(at + 1, kept)
        choices = [kept] + [kept - {victim} | {samples[at]} for victim in kept if room]
        if len(kept) < room:
            choices.append(kept | {samples[at]})
        return 1 + min(fewest(at + 1, choice) for choice in choices)

    orders = [EpochOrder(0, np.array(samples, np.int64).reshape(1, -1, 1))]
    assert fewest_reads(line_of(5, [(room, 0)]), Held.nothing(), orders).sum() == fewest(0, frozenset())


def test_the_optimum_of_unequal_blocks_is_refused() -> None:
    """There is no such bound that can be computed."""
    line = Line(np.array([1, 2]), (Room(1, 1),))
    with pytest.raises(UsageError, match="one size"):
        fewest_reads(line, Held.nothing(), [])
