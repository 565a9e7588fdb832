"""Functions of which every element needs sums over cut dimensions: softmax, and layer and RMS norm over extents.

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

from voxload.engine.forward.recording import Call, Given
from voxload.engine.forward.rules.channels import along, layer_norm
from voxload.engine.forward.rules.reducing import Partial
from voxload.engine.forward.rules.windows import bound
from voxload.engine.forward.ruling import Here, NoRule, Ruling, Wishes
from voxload.engine.forward.sharding import Sharding
from voxload.engine.statistics import wide_type

SOFTMAX: frozenset[Any] = frozenset(
    [getattr(place, name) for place in (torch, Tensor, functional) for name in ("softmax", "log_softmax")]
)
LAYER_NORM: frozenset[Any] = frozenset([functional.layer_norm])
RMS_NORM: frozenset[Any] = frozenset([functional.rms_norm])
_SOFTMAX = ("input", "dim", "dtype")
_NORM = ("input", "normalized_shape", "weight", "bias", "eps")
_RMS = ("input", "normalized_shape", "weight", "eps")
_EPS = 1e-5
"""What layer norm adds to the variance, unless it is told."""


@dataclass(frozen=True, slots=True)
class Softmax:
    """Softmax along a cut dimension; what is subtracted before cancels out, and needs no gradient."""

    partial: Partial
    is_logarithm: bool
    dtype: torch.dtype
    """Type of the result, which autocast may have chosen."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
        """Subtract the maximum, and divide by the sum; see Action."""
        x: Tensor = _softmax(args, kwargs)["input"].to(self.dtype)
        wide = x.to(wide_type(x))
        wide = wide - self.partial.extremum(wide.detach(), here, is_maximum=True)
        powers = wide.exp()
        total = self.partial.sum(powers, here)
        return (wide - total.log() if self.is_logarithm else powers / total).to(self.dtype)


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer norm, or RMS norm, which takes no mean off, over dimensions of which some are cut."""

    partial: Partial
    count: int
    """Elements of which statistics are taken."""
    part: Sharding
    """Cut of which this rank takes its part of weights and biases."""
    dtype: torch.dtype
    """Type of the result, which autocast may have chosen."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:
        """Take mean and variance, one after the other; see Action."""
        is_centred = function in LAYER_NORM
        given = bound(_NORM if is_centred else _RMS, args, kwargs)
        x: Tensor = given["input"].to(self.dtype)
        wide = x.to(wide_type(x))
        if is_centred:
            wide = wide - self.partial.sum(wide, here) / self.count
        variance = self.partial.sum(wide.square(), here) / self.count
        eps = given["eps"]
        if eps is None:
            eps = _EPS if is_centred else torch.finfo(wide.dtype).eps
        y = wide * torch.rsqrt(variance + eps)
        if given["weight"] is not None:
            y = y * self.part.block(given["weight"], here.coords)
        if given.get("bias") is not None:
            y = y + self.part.block(given["bias"], here.coords)
        return y.to(self.dtype)


def softmax(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:
    """Return what a softmax does; see Rule."""
    dim, cut = _softmax(call.args, call.kwargs)["dim"], cuts[0]
    if not isinstance(dim, int) or not cut.axes(dim % len(cut.dims)):
        return along(call, cuts, wishes)
    partial = Partial.over(cut, (dim % len(cut.dims),))
    action = Softmax(partial, call.function.__name__ == "log_softmax", call.made[0].dtype)
    return Ruling((cut,), (cut,), action)


def norm(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:
    """Return what a layer or RMS norm does; see Rule."""
    cut, given = cuts[0], bound(_NORM if call.function in LAYER_NORM else _RMS, call.args, call.kwargs)
    first = len(cut.dims) - len(given["normalized_shape"])
    if not any(number >= first for number, *_ in cut.cuts()):
        return layer_norm(call, cuts, wishes)
    if any(each is not None and not isinstance(each, Given) for each in (given["weight"], given.get("bias"))):
        raise NoRule("its weights depend on the volume")
    dims = tuple(range(first, len(cut.dims)))
    action = Norm(Partial.over(cut, dims), prod(cut.shape[first:]), Sharding(cut.dims[first:]), call.made[0].dtype)
    return Ruling((cut,), (cut,), action)


def _softmax(args: tuple[Any, ...], kwargs: dict[str, Any] | Any) -> dict[str, Any]:
    """Return a call's arguments by their names; in torch.nn.functional a level of the stack stands between them."""
    found = bound(_SOFTMAX, args[:2], kwargs)
    types = [each for each in args[2:] if isinstance(each, torch.dtype)]
    return found | ({"dtype": types[0]} if types else {})
