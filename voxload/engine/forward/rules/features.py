"""Layers with weights that are cut by filters or by channels: each rank has some rows or columns of the weight.

What a rank gives of its own filters is its part of the result. What ranks give of their own channels is added up, and
each rank gets its part of the sum (reduce-scatter): along the volume where the next layer is cut in space, else along
the result's own features. After Dryden et al., Channel and Filter Parallelism for Large-Scale CNN Training, SC'19.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from voxload.engine.arithmetic.split_plan import Use
from voxload.engine.arithmetic.windows import even_bounds
from voxload.engine.forward.redistribution import Gather, plan_scatter
from voxload.engine.forward.rule import Action, Context, LayerSplit, NoRule
from voxload.engine.forward.rules.reducing import Partial
from voxload.engine.forward.rules.weight_parts import own_part
from voxload.engine.forward.sharding import Dim, Factor, Sharding, dim_of


@dataclass(frozen=True, slots=True)
class Weighted:
    """A layer of which this rank has a part of the weight."""

    inner: Action
    """The layer itself."""
    names: tuple[str, ...]
    """Names of its arguments, in order."""
    weight: Sharding
    """Cut of the weight."""
    result: Sharding
    """Cut of the result."""
    dim: int
    """Dimension of the result that has its features."""
    scatters: tuple[Gather, ...] = ()
    """What adds up what ranks give of their own channels, and leaves each its part; backwards."""
    totals: tuple[Partial, ...] = ()
    """What adds it up and leaves all of it to every rank, along a dimension behind the last."""
    groups: Sharding | None = None
    """Cut of the layer's groups, where ranks have groups of their own."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Compute with a part of the weight, and add up; see Action."""
        given = dict(zip(self.names, args, strict=False)) | kwargs
        given["weight"] = own_part(given["weight"], self.weight, here.coords)
        bias = given.pop("bias", None)
        if bias is not None:
            bias = Sharding((self.result.dims[self.dim],)).block(bias, here.coords)
        is_summed = bool(self.scatters or self.totals)
        if not is_summed:
            given["bias"] = bias
        if self.groups is not None:
            (given["groups"],) = self.groups.block_shape(here.coords)
        y: Tensor = self.inner.run(function, (), given, here)
        for scatter in self.scatters:
            y = scatter.back(y, here.coords, here.exchange)
        for total in self.totals:
            y = total.sum(y[..., None], here)[..., 0]
        if bias is None or not is_summed:
            return y
        return y + bias.to(y.dtype).reshape(-1, *(1,) * (y.ndim - 1 - self.dim))


def features(extent: int, axes: Sequence[int], mesh: Sequence[int]) -> Dim:
    """Return a dimension of features that is dealt out over ranks along axes of the grid, the first one outermost.

    Raises NoRule where not every rank would have one, or outer parts would not be even.
    """
    several = [axis for axis in axes if mesh[axis] > 1]
    factors, inner = list[Factor](), extent
    for axis in several[:-1]:
        if inner % mesh[axis]:
            raise _too_few(extent, several, mesh)
        factors.append(Factor(mesh[axis], axis, tuple(range(mesh[axis] + 1))))
        inner //= mesh[axis]
    if not several:
        return dim_of([Factor(extent)])
    blocks = mesh[several[-1]]
    if inner < blocks:
        raise _too_few(extent, several, mesh)
    return dim_of([*factors, Factor(inner, several[-1], even_bounds(inner, blocks))])


def _too_few(extent: int, axes: Sequence[int], mesh: Sequence[int]) -> NoRule:
    ranks = " x ".join(str(mesh[axis]) for axis in axes)
    return NoRule(f"{extent} features cannot be dealt out to {ranks} ranks, the first of these evenly")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """What a layer's weights are like."""

    names: tuple[str, ...]
    """Names of its arguments, in order."""
    shape: tuple[int, ...]
    """Shape of the weight."""
    dim: int = 1
    """Dimension of input and result that has features."""
    spatial: int = 0
    """Dimensions of a volume, which are the last ones; 0 for a layer that knows of none."""
    groups: int = 1
    """Groups of features."""
    is_transposed: bool = False
    """Whether the weight has channels before filters."""

    def features(self, extent: int, axes: Sequence[int], mesh: Sequence[int]) -> Dim:
        """Return a dimension of features that is dealt out along `axes`, in whole groups; raises as `features`."""
        if self.groups == 1:
            return features(extent, axes, mesh)
        return dim_of([*features(self.groups, axes, mesh), Factor(extent // self.groups)])


def taken(cut: Sharding, split: LayerSplit, like: LayerWeights) -> Sharding:
    """Return the cut in which a layer takes its input; raises NoRule where it cannot be cut so."""
    channels = split.axes(Use.CHANNEL) if like.groups == 1 else split.axes(Use.CHANNEL, Use.FILTER)
    own = split.axes(Use.SPACE)
    stays = [axis for axis in own if like.spatial == 0 or axis not in cut.axes(like.dim)]
    now = cut.recut({axis: None for axis in cut.axes() if axis not in stays and axis not in channels})
    if like.groups > 1 or now.axes(like.dim) != frozenset(channels):
        now = now.recut(dict.fromkeys(channels))
        now = now.with_dim(like.dim, like.features(now.shape[like.dim], channels, split.mesh))
    return in_space(now, split, spatial=like.spatial)


def in_space(cut: Sharding, split: LayerSplit, *, spatial: int) -> Sharding:
    """Return the cut in which axes that cut nothing cut their own dimensions of a volume, as far as there are voxels.

    Of those whose use is space.
    """
    for axis in split.axes(Use.SPACE):
        number, blocks = len(cut.dims) - len(split.mesh) + axis, split.mesh[axis]
        is_free = number >= len(cut.dims) - spatial and axis not in cut.axes() and not cut.axes(number)
        if is_free and cut.shape[number] >= blocks * max(split.min_width, 1):
            extent = cut.shape[number]
            cut = cut.with_dim(number, [Factor(extent, axis, even_bounds(extent, blocks))])
    return cut


def weighted(
    action: Action, split: LayerSplit, like: LayerWeights, *, source: Sharding, result: Sharding
) -> tuple[Weighted, Sharding]:
    """Return the action of a layer of which ranks have parts of the weight, and the cut of its result.

    Parameters
    ----------
    action
        What is done with an input and a weight.
    split
        What the axes of the grid are used for.
    like
        The layer.
    source
        Cut of its input, as `taken` has it.
    result
        Cut of its result, if every rank had all features.
    """
    dim = like.dim
    filters = split.axes(Use.FILTER) if like.groups == 1 else split.axes(Use.CHANNEL, Use.FILTER)
    result = result.with_dim(dim, like.features(result.shape[dim], filters, split.mesh))
    pair = [source.dims[dim], result.dims[dim]] if like.is_transposed else [result.dims[dim], source.dims[dim]]
    if like.groups > 1:  # each rank has whole groups: the other dimension is one group's
        pair[1] = Sharding.whole(like.shape).dims[1]
    weight = Sharding((*pair, *Sharding.whole(like.shape).dims[2:]))
    if like.groups > 1:
        groups = Sharding((features(like.groups, filters, split.mesh),))
        return Weighted(action, like.names, weight, result, dim, groups=groups), result
    scatters, alike = list[Gather](), list[int]()
    for axis in split.axes(Use.CHANNEL):
        after = _scattered(result, split, axis, like)
        if after is None:
            alike.append(axis)
        else:
            scatters.append(plan_scatter(after, axis))
            result = after
    totals = tuple(Partial.over(_parted(result, axis, split.mesh[axis]), (len(result.dims),)) for axis in alike)
    return Weighted(action, like.names, weight, result, dim, tuple(scatters), totals), result


def _scattered(result: Sharding, split: LayerSplit, axis: int, like: LayerWeights) -> Sharding | None:
    """Return the cut of a sum over an axis of which each rank has a part; None where there are not parts for all."""
    if split.behind[axis] is Use.SPACE:
        uses = tuple(Use.SPACE if each == axis else Use.WHOLE for each in range(len(split.mesh)))
        found = in_space(result, replace(split, uses=uses), spatial=like.spatial)
        if found != result:
            return found
    axes = [*(factor.axis for factor in result.dims[like.dim] if factor.axis is not None), axis]
    try:
        return result.with_dim(like.dim, features(result.shape[like.dim], axes, split.mesh))
    except NoRule:
        return None


def _parted(result: Sharding, axis: int, blocks: int) -> Sharding:
    """Return the cut of what each rank of a line has of a sum, along a dimension behind the last."""
    return Sharding((*result.dims, (Factor(blocks, axis, tuple(range(blocks + 1))),)))
