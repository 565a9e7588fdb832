"""Reassembly: from blocks to the whole volume on every rank, for the replicated head of a network."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from voxload.engine.blocks import Blocks
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.gather import gather
from voxload.engine.plan import AxisPlan, Part, plan_axis
from voxload.geometry import Boundary


def plan_whole(blocks: Blocks) -> tuple[AxisPlan, ...]:
    """Return the gathers, axis by axis, after which every rank has the whole volume."""
    return tuple(
        plan_axis(axis, bounds, ((0, bounds[-1]),) * (len(bounds) - 1), Boundary.ZERO)
        for axis, bounds in enumerate(blocks.bounds)
    )


def parts_of(plans: Sequence[AxisPlan], coords: Sequence[int]) -> tuple[Part, ...]:
    """Return the parts of the rank at `coords`, without axes on which nothing moves."""
    return tuple(plan.at(coords[plan.axis]) for plan in plans if not plan.idle)


def reassemble(x: Tensor, parts: Sequence[Part], exchange: Exchange) -> Tensor:
    """Return the whole volume (B, C, D, H, W) from each rank's block; its adjoint sums over the ranks."""
    for part in parts:
        x = gather(x, part, fill=0.0, exchange=exchange)
    return x
