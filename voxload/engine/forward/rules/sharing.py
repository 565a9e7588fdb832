"""Functions of which every element needs sums over cut dimensions: softmax, and layer norm over extents.

Each rank sums what it has, and the ranks' few numbers are summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.moving import Move, moved, plan_move
from voxload.engine.forward.recording import Call, Given
from voxload.engine.forward.rules.channels import along, layer_norm
from voxload.engine.forward.rules.reducing import partial_of
from voxload.engine.forward.rules.windows import bound
from voxload.engine.forward.ruling import Here, NoRule, Ruling, Wishes
from voxload.engine.forward.sharding import Sharding
from voxload.engine.statistics import wide_type

SOFTMAX: frozenset[Any] = frozenset(
    [getattr(place, name) for place in (torch, Tensor, functional) for name in ("softmax", "log_softmax")]
)
LAYER_NORM: frozenset[Any] = frozenset([functional.layer_norm])
_SOFTMAX = ("input", "dim", "dtype")
_NORM = ("input", "normalized_shape", "weight", "bias", "eps")


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over dimensions of which some are cut."""

    dims: tuple[int, ...]
    move: Move
    """What brings the ranks' partial results, one position for each, to all of them."""

    @classmethod
    def over(cls, cut: Sharding, dims: tuple[int, ...]) -> Sums:
        """Return the sums over `dims` of what is cut so."""
        parts = Sharding(tuple(partial_of(each) if number in dims else each for number, each in enumerate(cut.dims)))
        return cls(dims, plan_move(parts, parts.whole_along(dims)))

    def of(self, x: Tensor, here: Here) -> Tensor:
        """Return the sums of all ranks' `x`, dimensions kept."""
        own = x.sum(self.dims, keepdim=True)
        return moved(own, self.move, here.coords, here.exchange).sum(self.dims, keepdim=True)

    def maximum(self, x: Tensor, here: Here) -> Tensor:
        """Return the largest of all ranks' `x`, dimensions kept; it has no gradient."""
        x = x.detach()
        own = x.amax(self.dims, keepdim=True) if x.numel() else x.sum(self.dims, keepdim=True) - torch.inf
        return moved(own, self.move, here.coords, here.exchange).amax(self.dims, keepdim=True)


@dataclass(frozen=True, slots=True)
class Softmax:
    """Softmax along a cut dimension; what is subtracted before cancels out, and needs no gradient."""

    sums: Sums
    is_logarithm: bool

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
        """Subtract the maximum, and divide by the sum; see Action."""
        given = _softmax(args, kwargs)
        x: Tensor = given["input"] if given["dtype"] is None else given["input"].to(given["dtype"])
        wide = x.to(wide_type(x))
        wide = wide - self.sums.maximum(wide, here)
        powers = wide.exp()
        total = self.sums.of(powers, here)
        return (wide - total.log() if self.is_logarithm else powers / total).to(x.dtype)


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer norm over dimensions of which some are cut."""

    sums: Sums
    count: int
    """Elements of which statistics are taken."""
    part: Sharding
    """Cut of which this rank takes its part of weights and biases."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
        """Take mean and variance, one after the other; see Action."""
        given = bound(_NORM, args, kwargs)
        x: Tensor = given["input"]
        wide = x.to(wide_type(x))
        wide = wide - self.sums.of(wide, here) / self.count
        variance = self.sums.of(wide.square(), here) / self.count
        y = (wide * torch.rsqrt(variance + (1e-5 if given["eps"] is None else given["eps"]))).to(x.dtype)
        if given["weight"] is not None:
            y = y * self.part.block(given["weight"], here.coords)
        return y if given["bias"] is None else y + self.part.block(given["bias"], here.coords)


def softmax(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:
    """Return what a softmax does; see Rule."""
    dim, cut = _softmax(call.args, call.kwargs)["dim"], cuts[0]
    if not isinstance(dim, int) or not cut.axes(dim % len(cut.dims)):
        return along(call, cuts, wishes)
    sums = Sums.over(cut, (dim % len(cut.dims),))
    return Ruling((cut,), (cut,), Softmax(sums, is_logarithm=call.function.__name__ == "log_softmax"))


def norm(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:
    """Return what a layer norm does; see Rule."""
    cut, given = cuts[0], bound(_NORM, call.args, call.kwargs)
    first = len(cut.dims) - len(given["normalized_shape"])
    if not any(number >= first for number, *_ in cut.cuts()):
        return layer_norm(call, cuts, wishes)
    if any(each is not None and not isinstance(each, Given) for each in (given["weight"], given["bias"])):
        raise NoRule("its weights depend on the volume")
    dims = tuple(range(first, len(cut.dims)))
    action = Norm(Sums.over(cut, dims), prod(cut.shape[first:]), Sharding(cut.dims[first:]))
    return Ruling((cut,), (cut,), action)


def _softmax(args: tuple[Any, ...], kwargs: dict[str, Any] | Any) -> dict[str, Any]:
    """Return a call's arguments by their names; in torch.nn.functional a level of the stack stands between them."""
    found = bound(_SOFTMAX, args[:2], kwargs)
    types = [each for each in args[2:] if isinstance(each, torch.dtype)]
    return found | ({"dtype": types[0]} if types else {})
