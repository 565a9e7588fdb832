"""Moves of a whole volume from one cut to another: onto every rank, or onto the blocks of another volume."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from voxload.engine.blocks import Blocks
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.gather import gather
from voxload.engine.outside import Outside
from voxload.engine.plan import AxisPlan, Part, plan_axis


def plan_whole(blocks: Blocks) -> tuple[AxisPlan, ...]:
    """Return the gathers, axis by axis, after which every rank has the whole volume."""
    return tuple(
        plan_axis(axis, bounds, ((0, bounds[-1]),) * (len(bounds) - 1), Outside.CONSTANT)
        for axis, bounds in enumerate(blocks.bounds)
    )


def plan_move(blocks: Blocks, target: Blocks) -> tuple[AxisPlan, ...]:
    """Return the gathers, axis by axis, that take a volume from `blocks` to the cut `target`."""
    return tuple(
        plan_axis(axis, old, tuple(pairwise(new)), Outside.CONSTANT)
        for axis, (old, new) in enumerate(zip(blocks.bounds, target.bounds, strict=True))
    )


def parts_of(plans: Sequence[AxisPlan], coords: Sequence[int]) -> tuple[Part, ...]:
    """Return the parts of the rank at `coords`, without axes on which nothing moves."""
    return tuple(plan.at(coords[plan.axis]) for plan in plans if not plan.idle)


def moved(x: Tensor, parts: Sequence[Part], exchange: Exchange) -> Tensor:
    """Return this rank's part of a volume (B, C, D, H, W) after a move; its adjoint sums over the ranks."""
    for part in parts:
        x = gather(x, part, fill=0.0, exchange=exchange)
    return x
