"""What the core is given to plan with: uses in tables, orders in any kind of array, states that are wrong."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.errors import InternalError
from voxload.prefetch.line import EpochOrder, Held, Ints, Line, Room
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.placement import Placement, validate
from voxload.prefetch.policies.clairvoyant import Clairvoyant
from voxload.prefetch.policies.protocol import State
from voxload.prefetch.policies.uses import NEVER, order_of, tabulate

LINE = Line(np.arange(1, 25, dtype=np.int64), (Room(60, 30), Room(20, 80), Room(0, 50)))
ORDERS = shuffled_orders(24, 3, batch=2, seed=11, epochs=4)
ARRAYS = ("samples", "owner", "tier", "ready", "keep", "drop_bounds", "drop_steps", "drop_samples")


def plans(line: Line, orders: tuple[EpochOrder, ...], held: Held | None = None) -> list[Placement]:
    """Plan and validate all epochs."""
    state = Clairvoyant().begin(line, held or Held.nothing())
    found, kept = [], state.held
    for number, epoch in enumerate(orders):
        placement, state = Clairvoyant().place(state, epoch, orders[number + 1 :])
        kept = validate(placement, line, kept)
        found.append(placement)
    return found


def digest(placements: list[Placement]) -> str:
    """Return a number for all that is planned, of any machine's byte order."""
    hashed = hashlib.sha256()
    for placement in placements:
        for name in ARRAYS:
            hashed.update(getattr(placement, name).astype("<i8").tobytes())
    return hashed.hexdigest()[:16]


@st.composite
def several_orders(draw: st.DrawFn) -> tuple[int, list[Ints]]:
    """Draw a number of samples, and orders of any shapes, empty ones too, with holes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups, samples = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    shapes = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=4))
    return samples, [rng.integers(-1, samples, (groups, *shape)) for shape in shapes]


@given(several_orders(), st.integers(0, 1000))
def test_uses_are_tabulated(drawn: tuple[int, list[Ints]], first: int) -> None:
    """By sample, then time, then group; and when pauses end."""
    samples, orders = drawn
    known: dict[int, list[tuple[int, int]]] = defaultdict(list)
    step = first
    for order in orders:
        for batches in order.transpose(1, 0, 2).tolist():
            for group, batch in enumerate(batches):
                for sample in batch:
                    known[sample].append((step, group))
            step += 1
    uses, bounds, ends = tabulate(orders, first, samples)
    assert bounds.tolist() == [sum(len(known[one]) for one in range(sample)) for sample in range(samples + 1)]
    assert [tuple(use) for use in uses.tolist()] == [use for sample in range(samples) for use in known[sample]]
    pauses = [
        (one[0], other[0])
        for sample in range(samples)
        for one, other in zip(known[sample], known[sample][1:], strict=False)
    ]
    expected = [min((end for begin, end in pauses if begin >= at), default=NEVER) for at in range(first, step + 1)]
    assert ends.tolist() == expected


def unaligned(order: Ints) -> Ints:
    """Return equal numbers at odd addresses."""
    packed = np.zeros(order.nbytes + 1, np.uint8)
    found: Ints = packed[1:].view(np.int64).reshape(order.shape)
    found[...] = order
    assert not found.flags.aligned
    return found


def locked(order: Ints) -> Ints:
    """Return equal numbers that nobody may write."""
    found = order.copy()
    found.flags.writeable = False
    return found


@pytest.mark.parametrize(
    "made",
    [
        unaligned,
        locked,
        lambda order: order.astype(">i8"),
        lambda order: order.astype(np.int16),
        lambda order: order.astype(np.float64),
        np.asfortranarray,
        lambda order: np.repeat(order, 2, axis=2)[:, :, ::2],
        lambda order: order[::-1, ::-1].copy()[::-1, ::-1],
    ],
)
def test_orders_come_in_any_array(made: Callable[[Ints], Any]) -> None:
    """Type, byte order, strides and alignment change nothing of a plan."""
    orders = tuple(EpochOrder(one.epoch, made(one.samples)) for one in ORDERS)
    assert digest(plans(LINE, orders)) == digest(plans(LINE, ORDERS))
    found = order_of(orders[0], 24, 3)
    assert found.dtype == np.int64
    assert found.flags.c_contiguous
    assert found.flags.aligned


def test_plans_are_the_same_for_good() -> None:
    """Ranks of one job may run builds of several compilers, for several processors: they all have to plan this."""
    drawn = np.arange(4 * 6 * 12 * 3, dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(9)
    samples = (drawn % np.uint64(15) * (drawn % np.uint64(14)) - (drawn % np.uint64(7) == 0)).astype(np.int64)
    orders = tuple(EpochOrder(epoch, order) for epoch, order in enumerate(samples.reshape(4, 6, 12, 3)))
    sizes = (np.arange(200, dtype=np.int64) * 37) % 23 + 1
    line = Line(sizes, tuple(Room(40 * group, 90 - 15 * group) for group in range(6)))
    placements = plans(line, orders)
    assert [each.drop_steps.size for each in placements] == [48, 32, 24, 24]
    assert digest(placements) == "4b7625a5ab628650"


@pytest.mark.parametrize("shape", [(3, 0, 2), (3, 4, 0), (3, 0, 0)])
def test_epochs_without_accesses_are_planned(shape: tuple[int, ...]) -> None:
    """No step, or no place in a batch: what is held stays, and the next epoch is planned as ever."""
    nothing = EpochOrder(0, np.zeros(shape, np.int64))
    held = Held.found([np.array([3, 4])], [np.array([7])])
    first, second = plans(LINE, (nothing, ORDERS[1]), held)
    assert first.samples.shape == first.owner.shape == shape
    assert first.drop_steps.size == 0
    assert second.storage_bytes(LINE.sizes) == LINE.sizes.sum() - LINE.sizes[[3, 4, 7]].sum()


def test_a_line_without_samples_is_planned() -> None:
    """All places are empty."""
    line = Line(np.zeros(0, np.int64), (Room(1, 1),))
    (placement,) = plans(line, (EpochOrder(0, np.full((1, 2, 2), -1)),))
    assert (placement.owner == -1).all()


def test_rooms_without_an_end_hold_everything() -> None:
    """Bytes of both tiers of all groups come to more than 64 bits hold."""
    line = replace(LINE, rooms=(Room(2**63 - 1, 2**63 - 1),) * 3)
    placements = plans(line, ORDERS)
    assert [placement.storage_bytes(line.sizes) for placement in placements] == [line.sizes.sum(), 0, 0, 0]
    assert all(placement.drop_steps.size == 0 for placement in placements)


def test_many_threads_plan_at_once() -> None:
    """No plan knows of another one."""
    expected = digest(plans(LINE, ORDERS))
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: digest(plans(LINE, ORDERS)), range(64))) == {expected}


HELD = Held.found([np.array([3, 4])], [np.array([7])])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (State(LINE, -1, HELD), r"state: step: found -1 to \d+, expected 0 to"),
        (State(LINE, NEVER - 4, HELD), "state: step"),
        (
            State(LINE, 0, replace(HELD, group=np.array([0, 3, 0], np.int32))),
            "state: group: found 0 to 3, expected 0 to 2",
        ),
        (State(LINE, 0, replace(HELD, group=np.array([0, -1, 0], np.int32))), "state: group"),
        (State(LINE, 0, replace(HELD, sample=np.array([3, 4, 24]))), "state: sample: found 3 to 24, expected 0 to 23"),
        (State(LINE, 0, replace(HELD, sample=np.array([3, -1, 2]))), "state: sample"),
        (
            State(LINE, 0, replace(HELD, tier=np.array([0, 2, 0], np.int8))),
            "state: tier: found 0 to 2, expected 0 to 1",
        ),
        (State(LINE, 0, replace(HELD, tier=np.array([0, -1, 0], np.int8))), "state: tier"),
        (State(Line(-LINE.sizes, LINE.rooms), 0, HELD), "state: size"),
    ],
)
def test_states_that_no_policy_returned_are_refused(wrong: State, message: str) -> None:
    """Groups, samples and tiers are places in tables, which the core looks up unchecked."""
    with pytest.raises(InternalError, match=message):
        Clairvoyant().place(wrong, ORDERS[0], ())


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_copies_that_are_free_or_ready_at_any_step_are_planned(seed: int) -> None:
    """What a state says of its copies' steps leads to no place in a table."""
    rng = np.random.default_rng(seed)
    count, most = HELD.copies, np.iinfo(np.int64).max
    free, ready = rng.choice([-most - 1, -1, 0, 3, most], (2, count))
    state = State(LINE, 5, replace(HELD, free=free, ready=ready))
    placement, after = Clairvoyant().place(state, ORDERS[0], ORDERS[1:])
    assert placement.owner.max() < 3
    assert set(free[free == most]) <= set(after.held.free)
