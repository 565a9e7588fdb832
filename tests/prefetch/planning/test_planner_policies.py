"""Planners that follow the plans of the real policies, ranks in step: each block comes from where it was planned."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.prefetch.planning.planner_world import Faults, World
from tests.prefetch.random_plans import Shape, planned_sources, some_line
from voxload.prefetch.events import Ready, SourceKind
from voxload.prefetch.line import EpochOrder, Held
from voxload.prefetch.planning.limits import Limits
from voxload.prefetch.policies import NAMES, named

EPOCHS = 3


def shuffled(shape: Shape, seed: int) -> list[EpochOrder]:
    """Return orders in which each epoch visits every sample once."""
    chance = np.random.default_rng(seed)
    form = (shape.steps, shape.groups, shape.batch)
    return [
        EpochOrder(epoch, np.ascontiguousarray(chance.permutation(shape.samples).reshape(form).swapaxes(0, 1)))
        for epoch in range(EPOCHS)
    ]


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("room", [200, 600, 2000])
@pytest.mark.parametrize("name", NAMES)
def test_each_policy_is_followed(name: str, room: int) -> None:
    """Nothing is read from the storage that the policy did not plan to read there."""
    shape = Shape(groups=3, steps=4, batch=2, samples=24, room=room)
    line, policy = some_line(shape, seed=1), named(name)
    orders = shuffled(shape, seed=2)
    state = policy.begin(line, Held.nothing())
    plans = []
    for epoch, order in enumerate(orders):
        placement, state = policy.place(state, order, orders[epoch + 1 :])
        plans.append([placement.of(group) for group in range(shape.groups)])
    world = World(line, np.arange(shape.samples), limits=Limits(patience=1e6), faults=Faults(handicap=math.inf), seed=3)
    held: dict[int, dict[int, int]] = {group: {} for group in range(shape.groups)}
    world.start([[epoch[group] for epoch in plans] for group in range(shape.groups)], held, slots=3)
    world.run()
    for group, rank in enumerate(world.ranks):
        assert [type(end) for end in rank.given] == [Ready] * (EPOCHS * shape.steps)
        planned = planned_sources(group, rank.plans)
        assert rank.sources[SourceKind.STORAGE] <= planned[SourceKind.STORAGE]
        assert rank.sources.total() == EPOCHS * shape.steps * shape.batch
