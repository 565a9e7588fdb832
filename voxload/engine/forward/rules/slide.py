"""Slide: what windows do along one dimension of a tensor that is cut, and what each rank fetches for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor

from voxload.engine.arithmetic.axis_plan import AxisPlan, PaddingMode, plan_axis
from voxload.engine.arithmetic.windows import Interval, Reach, Window, collapsed
from voxload.engine.forward.rule import Context, NoRule, Preferences
from voxload.engine.forward.sharding import Dim, Factor, Sharding, dim_of
from voxload.engine.run.collectives import gather

_FAR = 2
"""Times of the voxels that are fetched beyond which what is read with the padding is not made: of wide dilations."""


@dataclass(frozen=True, slots=True)
class Slide:
    """What windows do along one dimension."""

    dim: int
    reach: Reach
    plan: AxisPlan | None
    """What is fetched; None where every rank has all of it, and the function pads by itself."""
    result: Dim
    """Factors of the outputs."""
    outer: tuple[Interval, ...] = ()
    """What the windows of each rank read, where that lies so far outside of the volume that it is not fetched."""

    def first(self, coords: Sequence[int]) -> tuple[int, int, int]:
        """Return the first input that a rank has once all is fetched, its first output, and its number of outputs."""
        if self.plan is None:
            spans = (factor.span(coords) for factor in self.result)
            return 0, 0, prod(stop - start for start, stop in spans)
        place = coords[self.plan.axis]
        start, stop = self.result[0].span(coords)
        return self.plan.needs[place][0], start, stop - start

    def padding(self, coords: Sequence[int]) -> tuple[int, int]:
        """Return what the function is to pad on either side of what was fetched, and the first output to take then.

        Torch pads both sides alike. More than is read makes outputs that nobody wants, in front and behind.
        """
        place = coords[self.plan.axis] if self.plan is not None else 0
        if self.plan is None or not self.outer or not isinstance(self.reach, Window):
            return 0, 0
        (first, stop), (inner, end) = self.outer[place], self.plan.needs[place]
        low, high, stride = inner - first, stop - end, self.reach.stride
        more = max(0, -(-(high - low) // stride))
        return low + more * stride, more


def slide(
    cut: Sharding,
    dim: int,
    reach: Reach,
    wishes: Preferences,
    *,
    outside: PaddingMode = PaddingMode.CONSTANT,
    pads: bool = False,
) -> Slide:
    """Return what windows do along a dimension; raises NoRule where it is cut in several factors, or none fits.

    `pads` says whether the function can pad what lies `outside` by itself.
    """
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
    needs = reach.needs(owners, factor.extent)
    inner = tuple((max(lo, 0), min(hi, factor.extent)) if hi > lo else (lo, hi) for lo, hi in needs)
    is_far = pads and any(hi - lo > _FAR * (end - start) for (lo, hi), (start, end) in zip(needs, inner, strict=True))
    is_clipped = is_far and all(start < end for (lo, hi), (start, end) in zip(needs, inner, strict=True) if hi > lo)
    plan = plan_axis(factor.axis, factor.bounds, inner if is_clipped else needs, outside)
    return Slide(dim, reach, plan, (Factor(count, factor.axis, owners),), needs if is_clipped else ())


def fetched(x: Tensor, slides: Sequence[Slide], here: Context, *, fill: float = 0.0) -> Tensor:
    """Return what this rank's outputs read, dimension by dimension; what it has is not copied for nothing."""
    for each in slides:
        if each.plan is not None and not each.plan.idle:
            x = gather(x, here.part(each.plan, each.dim), fill=fill, exchange=here.exchange)
    return x
