"""Reductions over dimensions: sums, means, extrema, adaptive poolings; the ranks' few numbers are reduced once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call
from voxload.engine.forward.redistribution import Move, moved, plan_move
from voxload.engine.forward.rule import Context, NoRule, Preferences, Ruling, Same, bound
from voxload.engine.forward.sharding import Dim, Factor, Sharding
from voxload.engine.run.statistics import wide_type
from voxload.engine.run.tensors import sent

SUMS, MEANS = frozenset([torch.sum, Tensor.sum]), frozenset([torch.mean, Tensor.mean])
MAXIMA, MINIMA = frozenset([torch.amax, Tensor.amax]), frozenset([torch.amin, Tensor.amin])
ADAPTIVE: Mapping[Any, int] = {
    functional.adaptive_avg_pool1d: 1,
    torch.adaptive_avg_pool1d: 1,
    functional.adaptive_avg_pool2d: 2,
    functional.adaptive_avg_pool3d: 3,
}
"""By the number of dimensions that they pool."""
_NAMES = ("input", "dim", "keepdim")
_FIRST = 2


@dataclass(frozen=True, slots=True)
class Partial:
    """Reductions over dimensions of which some are cut: of what each rank has, then of the ranks' few numbers."""

    dims: tuple[int, ...]
    """Dimensions that are reduced."""
    move: Move
    """What brings the ranks' partial results, one position for each, to all of them."""

    @classmethod
    def over(cls, cut: Sharding, dims: tuple[int, ...]) -> Partial:
        """Return reductions over `dims` of what is cut so."""
        parts = Sharding(tuple(_partial(each) if number in dims else each for number, each in enumerate(cut.dims)))
        return cls(dims, plan_move(parts, parts.whole_along(dims)))

    def sum(self, x: Tensor, here: Context) -> Tensor:
        """Return the sums over all ranks' `x`, dimensions kept."""
        own = x.sum(self.dims, keepdim=True)
        return moved(own, self.move, here.coords, here.exchange).sum(self.dims, keepdim=True)

    def extremum(self, x: Tensor, here: Context, *, is_maximum: bool) -> Tensor:
        """Return the largest or smallest of all ranks' `x`, dimensions kept."""
        reduce: Any = torch.amax if is_maximum else torch.amin
        pads = [each for number in reversed(range(x.ndim)) for each in (0, int(x.shape[number] == 0))]
        filled = functional.pad(x, pads, value=-inf if is_maximum else inf) if any(pads) else x
        own = reduce(filled, self.dims, keepdim=True)
        result: Tensor = reduce(moved(own, self.move, here.coords, here.exchange), self.dims, keepdim=True)
        return result


@dataclass(frozen=True, slots=True)
class Reduce:
    """A sum, a mean or an extremum over dimensions of which some are cut."""

    partial: Partial
    count: int
    """Elements that a mean is over; 0 for what is no mean."""
    dtype: torch.dtype
    """Type of the result, which autocast may have chosen."""
    keeps: bool
    """Whether reduced dimensions stay, with one position."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Reduce, gather and reduce again; see Action."""
        x: Tensor = bound((*_NAMES, "dtype"), args, kwargs)["input"]
        if function in MAXIMA or function in MINIMA:
            result = self._extremum(x, here, is_maximum=function in MAXIMA)
        else:
            x = x.to(self.dtype)
            result = self.partial.sum(x.to(wide_type(x)) if self.count else x, here)
            result = (result / self.count if self.count else result).to(self.dtype)
        return result if self.keeps else result.squeeze(self.partial.dims)

    def _extremum(self, x: Tensor, here: Context, *, is_maximum: bool) -> Tensor:
        """Return extrema; all elements that are extreme have an equal share of the gradient, as torch has it."""
        found = self.partial.extremum(x.detach(), here, is_maximum=is_maximum)
        if not torch.is_grad_enabled():  # which all ranks have alike
            return found
        is_extreme = (x.detach() == found) | (x.detach().isnan() & found.isnan())
        count = self.partial.sum(is_extreme.to(wide_type(x)), here)
        shares = torch.where(is_extreme, x, torch.zeros((), dtype=x.dtype, device=x.device))
        mean = (self.partial.sum(shares.to(wide_type(x)), here) / count).to(x.dtype)
        # The extremum itself, to the last bit, with the gradient of the mean of what is extreme.
        return torch.where(found.isfinite(), found + (mean - mean.detach()), mean)


def reduce(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a sum, a mean or an extremum does; see Rule."""
    given = bound((*_NAMES, "dtype"), call.args, call.kwargs)
    cut, count = cuts[0], len(cuts[0].dims)
    dim = given["dim"]
    if not (dim is None or isinstance(dim, int | tuple | list)):
        raise NoRule("its dimensions are no numbers")
    chosen = range(count) if dim is None or dim in ((), []) else [dim] if isinstance(dim, int) else dim
    dims = tuple(sorted({number % count for number in chosen}))
    keeps = bool(given["keepdim"])
    result = _reduced(cut, dims, keeps=keeps)
    if not any(number in dims for number, *_ in cut.cuts()):
        return Ruling((cut,), (result,), Same())
    elements = prod(cut.shape[number] for number in dims) if call.function in MEANS else 0
    action = Reduce(Partial.over(cut, dims), elements, call.made[0].dtype, keeps)
    return Ruling((cut,), (result,), action)


def _partial(dim: Dim) -> Dim:
    """Return the cut of a dimension of which each rank has one position left: its own partial result."""
    return tuple(
        Factor(len(factor.bounds) - 1, factor.axis, tuple(range(len(factor.bounds))))
        for factor in dim
        if factor.axis is not None
    )


def _reduced(cut: Sharding, dims: Sequence[int], *, keeps: bool) -> Sharding:
    if keeps:
        return Sharding(tuple(() if number in dims else dim for number, dim in enumerate(cut.dims)))
    return Sharding(tuple(dim for number, dim in enumerate(cut.dims) if number not in dims))


@dataclass(frozen=True, slots=True)
class PoolTo:
    """Means over windows that divide every dimension into a number of parts."""

    cut: Sharding
    sizes: tuple[int, ...]
    """Windows, of the dimensions that are pooled."""
    move: Move
    """What brings the ranks' partial sums to all of them."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Sum, gather and sum; see Action."""
        x: Tensor = args[0]
        part = x.to(wide_type(x))
        for index, size in enumerate(self.sizes):
            number, extent = _FIRST + index, self.cut.shape[_FIRST + index]
            weights = torch.zeros(size, part.shape[_FIRST], dtype=torch.float64)
            first = (self.cut.positions(number, here.coords) or [0])[0]
            for window in range(size):
                lo, hi = window * extent // size, -(-(window + 1) * extent // size)
                weights[window, max(lo - first, 0) : max(hi - first, 0)] = 1 / (hi - lo)
            # The dimension at hand is always the first one left; its outputs go behind all others.
            part = torch.tensordot(part, sent(weights.to(part.dtype), part.device), dims=([_FIRST], [1]))
        shape = (*part.shape[:_FIRST], *(each for size in self.sizes for each in (1, size)))
        gathered = moved(part.reshape(shape), self.move, here.coords, here.exchange)
        return gathered.sum(tuple(range(_FIRST, gathered.ndim, 2))).to(x.dtype)


def adapt(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what an adaptive mean does: its result is whole but for its channels; see Rule."""
    count = ADAPTIVE[call.function]
    if len(cuts[0].dims) != _FIRST + count:
        raise NoRule("it takes one sample without a batch")
    cut = cuts[0].whole_along([0])
    (made,) = call.made
    sizes = made.shape[_FIRST:]
    dims: list[Dim] = list(cut.dims[:_FIRST])
    for index, size in enumerate(sizes):
        if len(cut.dims[_FIRST + index]) > 1:
            raise NoRule("it pools axes that are one dimension")
        partial = _partial(cut.dims[_FIRST + index])
        dims += [partial, *Sharding.whole([size]).dims]
    partials = Sharding(tuple(dims))
    move = plan_move(partials, partials.whole_along(range(_FIRST, len(dims))))
    result = Sharding((*cut.dims[:_FIRST], *Sharding.whole(sizes).dims))
    return Ruling((cut,), (result,), PoolTo(cut, sizes, move))


ADAPTIVE_MAXIMA: Mapping[Any, int] = {
    functional.adaptive_max_pool1d: 1,
    functional.adaptive_max_pool2d: 2,
    functional.adaptive_max_pool3d: 3,
}
"""By the number of dimensions that they pool."""
_ADAPTIVE_NAMES = ("input", "output_size", "return_indices")
_POOLED = 2


@dataclass(frozen=True, slots=True)
class First:
    """The largest element over dimensions of which some are cut; of several the one with the first position.

    It alone has the gradient, as in torch's poolings.
    """

    partial: Partial
    cut: Sharding

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Find its value and its position, and take it from the rank that has it; see Action."""
        x: Tensor = bound(_ADAPTIVE_NAMES, args, kwargs)["input"]
        seen = x.detach().to(torch.float64)
        seen = torch.where(seen.isnan(), inf, seen)  # torch's poolings take a NaN for the largest
        largest = self.partial.extremum(seen, here, is_maximum=True)
        places = self._places(x, here)
        own = torch.where(seen == largest, places, inf)
        first = self.partial.extremum(own, here, is_maximum=False)
        taken = torch.where(own == first, x, torch.zeros((), dtype=x.dtype, device=x.device))
        return self.partial.sum(taken, here)

    def _places(self, x: Tensor, here: Context) -> Tensor:
        """Return the place of each element in row-major order of the dimensions that are pooled; exact below 2^53."""
        dims = range(_POOLED, x.ndim)
        found = torch.zeros((), dtype=torch.float64)
        for number in dims:
            positions = torch.tensor(self.cut.positions(number, here.coords), dtype=torch.float64)
            found = found[..., None] * self.cut.shape[number] + positions
        return sent(found, x.device)


def adapt_maximum(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what an adaptive maximum does that leaves one element; see Rule."""
    given, count = bound(_ADAPTIVE_NAMES, call.args, call.kwargs), ADAPTIVE_MAXIMA[call.function]
    cut = cuts[0]
    if given["return_indices"] or len(call.made) != 1:
        raise NoRule("it returns indices into the whole volume")
    if len(cut.dims) != _POOLED + count:
        raise NoRule("it takes one sample without a batch")
    (made,) = call.made
    dims = tuple(range(_POOLED, len(cut.dims)))
    if not any(number in dims for number, *_ in cut.cuts()):
        return Ruling((cut,), (Sharding((*cut.dims[:_POOLED], *Sharding.whole(made.shape[_POOLED:]).dims)),), Same())
    if prod(made.shape[_POOLED:]) != 1:
        raise NoRule("it leaves several maxima of axes that are cut")
    result = Sharding((*cut.dims[:_POOLED], *Sharding.whole(made.shape[_POOLED:]).dims))
    return Ruling((cut,), (result,), First(Partial.over(cut, dims), cut))
