"""What `validate` finds: one broken plan for each rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from voxload.errors import InternalError
from voxload.prefetch.line import Held, Line, Room
from voxload.prefetch.placement import Placement, validate

LINE = Line(np.ones(4, np.int64), (Room(1, 1), Room(1, 0)))
HELD = Held.found([np.array([3]), np.zeros(0, np.int64)], [np.zeros(0, np.int64), np.zeros(0, np.int64)])


def plan() -> Placement:
    """Return a valid plan: group 0 keeps sample 0, which group 1 fetches at the same step and at the next one."""
    return Placement(
        epoch=0,
        first_step=10,
        samples=np.array([[[0], [3], [1], [1]], [[0], [0], [2], [-1]]]),
        owner=np.array([[[-1], [0], [-1], [0]], [[0], [0], [-1], [-1]]], np.int32),
        tier=np.array([[[-1], [0], [-1], [0]], [[1], [1], [-1], [-1]]], np.int8),
        ready=np.array([[[0], [0], [0], [12]], [[10], [10], [0], [0]]]),
        keep=np.array([[[1], [-1], [0], [-1]], [[-1], [-1], [0], [-1]]], np.int8),
        drop_bounds=np.array([0, 2, 2]),
        drop_steps=np.array([12, 13]),
        drop_samples=np.array([3, 0]),
    )


def test_a_valid_plan_passes() -> None:
    """What the tiers contain afterwards is returned."""
    held = validate(plan(), LINE, HELD)
    assert list(zip(held.group, held.sample, held.tier, held.ready, held.free, strict=True)) == [
        (0, 1, 0, 12, 14),
        (1, 2, 0, 12, 13),
    ]


@pytest.mark.parametrize(
    ("array", "at", "value", "message"),
    [
        ("drop_steps", 1, 12, "step 12, group 0: sample 0 is dropped before step 13, where it may be in use"),
        ("drop_steps", 0, 11, "step 11, group 0: sample 3 is not at group 0"),
        ("drop_steps", 0, 13, "step 12, group 0: tier 0 has no room for sample 1"),
        ("drop_steps", 1, 14, "step 14, group 0: a drop is not in the epoch"),
        ("drop_samples", 1, 2, "step 13, group 0: sample 2 is dropped and not there"),
        ("keep", (1, 0, 0), 1, "step 10, group 1: tier 1 has no room for sample 0"),
        ("keep", (0, 1, 0), 1, "step 11, group 0: sample 3 is kept twice"),
        ("keep", (0, 3, 0), 0, "step 13, group 0: sample 1 is kept twice"),
        ("keep", (0, 0, 0), 2, "step 10, group 0: sample 0 is kept in tier 2"),
        ("keep", (1, 3, 0), 0, "step 13, group 1: a place without sample is kept"),
        ("owner", (0, 0, 0), 1, "step 10, group 0: sample 0 is not at group 1"),
        ("owner", (0, 0, 0), 0, "step 10, group 0: sample 0 is stored from this group's own tier"),
        ("owner", (0, 0, 0), 5, "step 10, group 0: sample 0 is not at group 5"),
        ("owner", (1, 3, 0), 0, "step 13, group 1: sample -1 is not at group 0"),
        ("tier", (0, 0, 0), 0, "step 10, group 0: sample 0 comes from tier 0 of no group"),
        ("tier", (0, 1, 0), 1, "sample 3 is in tier 0 from step 0 at group 0, not in 1 from 0"),
        ("ready", (1, 1, 0), 11, "sample 0 is in tier 1 from step 10 at group 0, not in 1 from 11"),
        ("drop_bounds", 2, 1, "the bounds of drops do not fit"),
    ],
)
def test_a_broken_rule_is_named(array: str, at: int | tuple[int, ...], value: int, message: str) -> None:
    """The error says which step, group and sample."""
    broken = getattr(plan(), array).copy()
    broken[at] = value
    with pytest.raises(InternalError, match=message):
        validate(replace(plan(), **{array: broken}), LINE, HELD)


def test_blocks_do_not_go_in_circles() -> None:
    """Two groups that pass each other a block at the same step both lack it."""
    line = Line(np.ones(1, np.int64), (Room(1, 0), Room(1, 0)))
    places = np.zeros((2, 1, 1), np.int64)
    circle = Placement(
        epoch=0,
        first_step=0,
        samples=places,
        owner=np.array([[[1]], [[0]]], np.int32),
        tier=places.astype(np.int8),
        ready=places,
        keep=places.astype(np.int8),
        drop_bounds=np.zeros(3, np.int64),
        drop_steps=np.zeros(0, np.int64),
        drop_samples=np.zeros(0, np.int64),
    )
    with pytest.raises(InternalError, match="sample 0 goes in a circle"):
        validate(circle, line, Held.nothing())


def test_shapes_must_agree() -> None:
    """Arrays of different shapes are no plan."""
    with pytest.raises(InternalError, match="arrays of shapes"):
        validate(replace(plan(), keep=np.zeros((2, 3, 1), np.int8)), LINE, HELD)
    unordered = replace(plan(), drop_steps=np.array([13, 12]))
    with pytest.raises(InternalError, match="not in the order of steps"):
        validate(unordered, LINE, HELD)


def test_what_is_held_must_fit() -> None:
    """A plan cannot begin with more than there is room for."""
    held = Held.found([np.array([3]), np.zeros(0, np.int64)], [np.array([1, 2]), np.zeros(0, np.int64)])
    with pytest.raises(InternalError, match="step 10, group 0: tier 1 has no room for sample 2"):
        validate(plan(), LINE, held)
