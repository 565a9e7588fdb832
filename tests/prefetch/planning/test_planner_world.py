"""Planners of several ranks in a world of random plans and troubles: every batch comes, whole and in order."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.prefetch.planning.planner_world import Faults, World
from tests.prefetch.random_plans import Placing, Shape, planned_sources, some_held, some_line
from voxload.prefetch.events import Failed, SourceKind
from voxload.prefetch.planning.eventlog import EventLog, replay
from voxload.prefetch.planning.limits import Limits

EXAMPLES = 25
SHAPES = st.builds(
    Shape,
    groups=st.integers(1, 4),
    steps=st.integers(1, 6),
    batch=st.integers(1, 3),
    samples=st.integers(1, 20),
    room=st.sampled_from([0, 300, 1000, 5000]),
)
SEEDS = st.integers(0, 2**32 - 1)
LIMITS = st.builds(
    Limits,
    storage=st.integers(1, 3),
    peer=st.integers(1, 3),
    awaited=st.integers(1, 3),
    local=st.integers(1, 2),
    parts=st.integers(1, 4),
    bytes=st.sampled_from([100, 300, 10**6]),
    window=st.integers(0, 3),
    patience=st.sampled_from([0.0, 2.0]),
)
FAULTS = st.builds(
    Faults,
    absent=st.sampled_from([0, 0.2]),
    wrong=st.sampled_from([0, 0.2]),
    lost=st.sampled_from([0, 0.2]),
    error=st.sampled_from([0, 0.2]),
    broken=st.frozensets(st.integers(0, 19), max_size=2),
    refused=st.sampled_from([0, 0.3]),
    slow=st.sampled_from([0, 0.1]),
    handicap=st.sampled_from([1.0, math.inf]),
    dead=st.frozensets(st.integers(0, 3), max_size=1),
    announced=st.booleans(),
)


def made(shape: Shape, limits: Limits, faults: Faults, *, slots: int, seed: int, epochs: int = 2) -> World:
    """Return a world that has begun."""
    line = some_line(shape, seed)
    held = some_held(line, shape, seed)
    placing = Placing(line, shape, held, seed)
    plans = [placing.epoch(number) for number in range(epochs)]
    files = np.random.default_rng(seed).integers(0, max(1, shape.samples // 3), shape.samples)
    world = World(line, files, limits=limits, faults=faults, seed=seed)
    world.start([[epoch[group] for epoch in plans] for group in range(shape.groups)], held, slots)
    return world


def check_all_given(world: World) -> None:
    """Every rank has all its batches, and those that failed are what the storage cannot read."""
    for rank in world.ranks:
        assert [end.step for end in rank.given] == sorted(rank.wanted)
        assert not rank.fetches
        assert not rank.stores
        assert rank.tiers == rank.planner.held


@settings(max_examples=EXAMPLES, deadline=None)
@given(SHAPES, LIMITS, FAULTS, st.integers(1, 5), SEEDS)
def test_every_batch_comes_once_in_order_and_whole(
    shape: Shape, limits: Limits, faults: Faults, slots: int, seed: int
) -> None:
    """Whatever fails, a step comes out ready with its own blocks, or failed where the storage failed."""
    world = made(shape, limits, faults, slots=slots, seed=seed)
    world.run()
    check_all_given(world)
    for group, rank in enumerate(world.ranks):
        told = [record.told for record in rank.logged.log]
        logged = [list(record.answer) for record in rank.logged.log]
        held = some_held(world.line, shape, seed)[group]
        assert replay(world.planner(group, held), told) == logged
        again = EventLog.from_text(rank.logged.log.to_text())
        assert replay(world.planner(group, held), [record.told for record in again]) == logged
        assert [list(record.answer) for record in again] == logged


@settings(max_examples=EXAMPLES, deadline=None)
@given(SHAPES, LIMITS, st.integers(1, 5), SEEDS)
def test_without_trouble_each_block_comes_from_where_the_plan_says(
    shape: Shape, limits: Limits, slots: int, seed: int
) -> None:
    """Ranks in step find what was promised: the storage is read exactly as often as planned, or less."""
    world = made(
        replace(shape, is_even=True), replace(limits, patience=1e6), Faults(handicap=math.inf), slots=slots, seed=seed
    )
    world.run()
    check_all_given(world)
    for group, rank in enumerate(world.ranks):
        planned = planned_sources(group, rank.plans)
        assert not any(isinstance(end, Failed) for end in rank.given)
        assert rank.sources[SourceKind.STORAGE] <= planned[SourceKind.STORAGE]
        assert rank.sources.total() == planned.total()


@settings(max_examples=EXAMPLES, deadline=None)
@given(SHAPES, LIMITS, FAULTS, st.integers(1, 5), SEEDS)
def test_a_cut_forgets_what_follows_and_what_replaces_it_comes_out(
    shape: Shape, limits: Limits, faults: Faults, slots: int, seed: int
) -> None:
    """After a cut in the middle of fetches and stores another plan runs to its end, with what is held then."""
    world = made(shape, limits, faults, slots=slots, seed=seed)
    chance = random.Random(seed)
    world.run(until=chance.randrange(200))
    first = (
        max(max((rank.taken for rank in world.ranks), default=-1), *(rank.planner.clock for rank in world.ranks)) + 1
    )
    first += chance.randrange(3)
    for rank in world.ranks:
        world.cut(rank, min(first, rank.planner.planned))
        assert all(step < first for step in rank.planner._state.steps)
    held = {group: dict(rank.planner.held) for group, rank in enumerate(world.ranks)}
    placing = Placing(world.line, shape, held, seed + 1)
    placing.planned = max(first, *(rank.planner.planned for rank in world.ranks))
    for rank, plan in zip(world.ranks, placing.epoch(7), strict=True):
        world.extend(rank, plan)
    world.run()
    check_all_given(world)


def test_the_world_sees_every_kind_of_trouble() -> None:
    """The random worlds are worth something: all kinds of places are used, and steps fail."""
    sources: Counter[SourceKind] = Counter()
    failed = 0
    for seed in range(8):
        shape = Shape(groups=3, steps=6, batch=2, samples=12, room=400)
        world = made(shape, Limits(), Faults(broken=frozenset({1}), handicap=math.inf), slots=3, seed=seed)
        world.run()
        for rank in world.ranks:
            sources += rank.sources
            failed += sum(isinstance(end, Failed) for end in rank.given)
    assert set(sources) == set(SourceKind) - {SourceKind.SERVICE}
    assert failed
