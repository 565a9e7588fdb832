"""Slide: what windows do along one dimension of a tensor that is cut, and what each rank fetches for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor

from voxload.engine.forward.ruling import Here, NoRule, Wishes
from voxload.engine.forward.sharding import Dim, Factor, Sharding, dim_of
from voxload.engine.gather import gather
from voxload.engine.outside import Outside
from voxload.engine.plan import AxisPlan, plan_axis
from voxload.engine.reach import Reach, collapsed
from voxload.engine.window import Window


@dataclass(frozen=True, slots=True)
class Slide:
    """What windows do along one dimension."""

    dim: int
    reach: Reach
    plan: AxisPlan | None
    """What is fetched; None where every rank has all of it, and the function pads by itself."""
    result: Dim
    """Factors of the outputs."""

    def first(self, coords: Sequence[int]) -> tuple[int, int, int]:
        """Return the first input that a rank has once all is fetched, its first output, and its number of outputs."""
        if self.plan is None:
            spans = (factor.span(coords) for factor in self.result)
            return 0, 0, prod(stop - start for start, stop in spans)
        place = coords[self.plan.axis]
        start, stop = self.result[0].span(coords)
        return self.plan.needs[place][0], start, stop - start


def slide(cut: Sharding, dim: int, reach: Reach, wishes: Wishes, *, outside: Outside = Outside.CONSTANT) -> Slide:
    """Return what windows do along a dimension; raises NoRule where it is cut in several factors, or none fits."""
    factors = cut.dims[dim]
    count = reach.outputs(cut.shape[dim])
    if count < 1:
        raise NoRule(f"{reach.describe()} does not fit {cut.shape[dim]} voxels")
    (factor,) = factors if len(factors) == 1 else (None,)
    if factor is None or factor.axis is None:
        if any(each.axis is not None for each in factors):
            if reach == Window(1):
                return Slide(dim, reach, None, factors)  # voxel by voxel, whatever their order
            raise NoRule("windows slide along axes that are one dimension")
        return Slide(dim, reach, None, dim_of([Factor(count)]))
    owners = collapsed(reach.owners(factor.bounds), wishes.min_width)
    is_alike = wishes.cut is not None and len(wishes.cut.dims) == len(cut.dims) and wishes.cut.shape[dim] == count
    wished = wishes.cut.dims[dim] if wishes.cut is not None and is_alike else ()
    if len(wished) == 1 and wished[0].axis == factor.axis:
        owners = wished[0].bounds
    plan = plan_axis(factor.axis, factor.bounds, reach.needs(owners, factor.extent), outside)
    return Slide(dim, reach, plan, (Factor(count, factor.axis, owners),))


def fetched(x: Tensor, slides: Sequence[Slide], here: Here, *, fill: float = 0.0) -> Tensor:
    """Return what this rank's outputs read, dimension by dimension; what it has is not copied for nothing."""
    for each in slides:
        if each.plan is not None and not each.plan.idle:
            x = gather(x, here.part(each.plan, each.dim), fill=fill, exchange=here.exchange)
    return x
