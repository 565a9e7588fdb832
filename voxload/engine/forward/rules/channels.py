"""Functions along dimensions that every rank has whole, such as channels: what they mix lies on one rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call, Given
from voxload.engine.forward.rule import Context, NoRule, Preferences, Ruling, Same, bound
from voxload.engine.forward.rules.features import LayerWeights, taken, weighted
from voxload.engine.forward.rules.pointwise import Pointwise
from voxload.engine.forward.rules.reducing import Partial
from voxload.engine.forward.sharding import Sharding

LINEAR: frozenset[Any] = frozenset([functional.linear])
_LINEAR = ("input", "weight", "bias")
ALONG: frozenset[Any] = frozenset(
    [functional.normalize, functional.glu, torch.cumsum, Tensor.cumsum, functional.softmin]
)
"""Functions along one dimension, which stays."""
PRELU: frozenset[Any] = frozenset([functional.prelu, torch.prelu])
EXPANSIONS: frozenset[Any] = frozenset([Tensor.expand, Tensor.expand_as])
REPEATS: frozenset[Any] = frozenset([Tensor.repeat])
_PLACES: Mapping[str, int] = {"normalize": 2}
"""Places of the argument that names the dimension, where it is not the second."""
_DEFAULTS: Mapping[str, int] = {"normalize": 1, "glu": -1}


@dataclass(frozen=True, slots=True)
class Columns:
    """A dense layer over a dimension that is cut: products of what each rank has, added up.

    (B, outputs) numbers of every rank travel in place of the volume. The weight stays whole on every rank.
    """

    part: Sharding
    """Cut of which this rank takes its columns of the weight."""
    partial: Partial
    """Sums over the ranks, along a dimension behind the last."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Multiply and add up; see Action."""
        given = bound(_LINEAR, args, kwargs)
        own = function(given["input"], self.part.block(given["weight"], here.coords))
        total = self.partial.sum(own[..., None], here)[..., 0]
        return total if given["bias"] is None else total + given["bias"].to(total.dtype)


def linear(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what a dense layer over the last dimension does, which is made whole unless columns are; see Rule."""
    weight = bound(_LINEAR, call.args, call.kwargs)["weight"]
    if not isinstance(weight, Given):
        raise NoRule("its weights depend on the volume")
    (made,) = call.made
    last = len(cuts[0].dims) - 1
    if wishes.split is not None and not wishes.split.is_in_space:
        like = LayerWeights(_LINEAR, weight.shape, dim=last)
        cut = taken(cuts[0], wishes.split, like)
        result = cut.with_dim(last, Sharding.whole(made.shape).dims[last])
        action, result = weighted(Same(), wishes.split, like, source=cut, result=result)
        return Ruling((cut,), (result,), action)
    if wishes.columns and cuts[0].axes(last):
        outputs = Sharding.whole(weight.shape[:1]).dims
        part = Sharding((*outputs, cuts[0].dims[last]))
        partial = Partial.over(Sharding((*cuts[0].dims[:last], *part.dims)), (last + 1,))
        return Ruling(cuts, (cuts[0].with_dim(last, Sharding.whole(made.shape).dims[last]),), Columns(part, partial))
    cut = cuts[0].whole_along([last])
    return Ruling((cut,), (cut.with_dim(last, Sharding.whole(made.shape).dims[last]),), Same())


def along(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a function along one dimension does, which is made whole; see Rule."""
    name = call.function.__name__
    place = _PLACES.get(name, 1)
    dim = call.args[place] if len(call.args) > place else call.kwargs.get("dim", _DEFAULTS.get(name))
    if not isinstance(dim, int):
        raise NoRule("its dimension is no number")
    number = dim % len(cuts[0].dims)
    cut = cuts[0].whole_along([number])
    (made,) = call.made
    result = cut if made.shape == cut.shape else cut.with_dim(number, Sharding.whole(made.shape).dims[number])
    return Ruling((cut,), (result,), Same())


def layer_norm(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a normalisation over the last dimensions does, where these are whole; see Rule."""
    count = len(bound(("input", "normalized_shape"), call.args, call.kwargs)["normalized_shape"])
    last = range(len(cuts[0].dims) - count, len(cuts[0].dims))
    if any(number in last for number, *_ in cuts[0].cuts()):
        raise NoRule("it normalises over axes that are cut")
    return Ruling(cuts, cuts, Same())


def prelu(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a rectifier with a slope for every channel does: each rank takes those of its own; see Rule."""
    if len(cuts) > 1:
        raise NoRule("its slopes depend on the volume")
    slopes = bound(("input", "weight"), call.args, call.kwargs)["weight"].shape
    is_by_channel = len(cuts[0].dims) > 1 and slopes == cuts[0].shape[1:2]
    parts = ((1, Sharding(cuts[0].dims[1:2])),) if is_by_channel and cuts[0].axes(1) else ()
    return Ruling(cuts, cuts, Pointwise(parts))


@dataclass(frozen=True, slots=True)
class Expand:
    """An expansion to this rank's extents."""

    result: Sharding

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Expand; see Action."""
        return args[0].expand(self.result.block_shape(here.coords))


def expand(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what an expansion does: dimensions of one position get more, which every rank has; see Rule."""
    (made,) = call.made
    offset = len(made.shape) - len(cuts[0].dims)
    dims = list(Sharding.whole(made.shape).dims)
    for number, dim in enumerate(cuts[0].dims):
        if cuts[0].shape[number] == made.shape[number + offset]:
            dims[number + offset] = dim
    result = Sharding(tuple(dims))
    return Ruling((cuts[0], *(Sharding.whole(cut.shape) for cut in cuts[1:])), (result,), Expand(result))


def repeat(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a repetition along dimensions that are whole does; see Rule."""
    (made,) = call.made
    offset = len(made.shape) - len(cuts[0].dims)
    dims = list(Sharding.whole(made.shape).dims)
    for number, dim in enumerate(cuts[0].dims):
        if cuts[0].axes(number):
            if cuts[0].shape[number] != made.shape[number + offset]:
                raise NoRule("it repeats an axis that is cut")
            dims[number + offset] = dim
    return Ruling(cuts, (Sharding(tuple(dims)),), Same())
