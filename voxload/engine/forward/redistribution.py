"""Redistribution: a tensor brought from one cut to another, by gathers along one axis of the grid after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import Tensor

from voxload.engine.arithmetic.axis_plan import AxisPlan, PaddingMode, plan_axis
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.sharding import Sharding
from voxload.engine.run.collectives import gather


@dataclass(frozen=True, slots=True)
class Stage:
    """The gather of one factor."""

    before: Sharding
    """Cut of the tensor before it."""
    dim: int
    """Dimension of which the factor is one."""
    place: int
    """Which one."""
    plan: AxisPlan
    """Who has and who needs which positions of the factor."""


@dataclass(frozen=True, slots=True)
class Move:
    """What brings a tensor to another cut; pure."""

    stages: tuple[Stage, ...]
    """Gathers, in order."""
    sliced: Sharding | None
    """Cut that every rank takes by itself, once it has all; None where gathers do."""


def plan_move(source: Sharding, target: Sharding) -> Move:
    """Return what takes a tensor from the cut `source` to `target`, which is one of a tensor of the same shape.

    Positions move straight to where they are needed where both cut the same factors. Otherwise every rank gets the
    whole and takes its part.
    """
    wanted = {factor.axis: factor.bounds for *_, factor in target.cuts() if factor.axis is not None}
    changes = {factor.axis: wanted.get(factor.axis) for *_, factor in source.cuts() if factor.axis is not None}
    if source.recut(changes) != target:
        changes = dict.fromkeys(changes)
    now, stages = source, []
    for axis, bounds in changes.items():
        number, place, factor = next(one for one in now.cuts() if one[2].axis == axis)
        if bounds == factor.bounds:
            continue
        needs = tuple(pairwise(bounds)) if bounds else ((0, factor.extent),) * (len(factor.bounds) - 1)
        stages.append(Stage(now, number, place, plan_axis(axis, factor.bounds, needs, PaddingMode.CONSTANT)))
        now = now.recut({axis: bounds})
    return Move(tuple(stages), None if now == target else target)


def moved(x: Tensor, move: Move, coords: Sequence[int], exchange: Exchange) -> Tensor:
    """Return the block of the rank at `coords` after a move; its adjoint sums over the ranks."""
    for stage in move.stages:
        x = gathered(x, stage, coords, exchange)
    block: Tensor = x if move.sliced is None else move.sliced.block(x, coords)
    return block


def gathered(x: Tensor, stage: Stage, coords: Sequence[int], exchange: Exchange) -> Tensor:
    """Return what the rank at `coords` has after one stage."""
    spans = [stop - start for start, stop in (factor.span(coords) for factor in stage.before.dims[stage.dim])]
    before, behind = prod(spans[: stage.place]), prod(spans[stage.place + 1 :])
    shape = tuple(x.shape)
    apart = x.reshape(*shape[: stage.dim], before, spans[stage.place], behind, *shape[stage.dim + 1 :])
    part = stage.plan.at(coords[stage.plan.axis], dim=stage.dim + 1)
    found = gather(apart, part, fill=0.0, exchange=exchange)
    return found.reshape(
        *shape[: stage.dim], -1 if x.numel() else before * part.needed * behind, *shape[stage.dim + 1 :]
    )
