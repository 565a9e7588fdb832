"""Normalisations, softmax among them: with statistics of the whole, of which each rank has a part.

Functions of which every element needs sums over cut dimensions: softmax, and layer and RMS norm over extents. Each
rank sums what it has, and the ranks' few numbers are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call, Given
from voxload.engine.forward.rule import Context, NoRule, Preferences, Ruling, bound
from voxload.engine.forward.rules.channels import along, layer_norm
from voxload.engine.forward.rules.reducing import Partial
from voxload.engine.forward.sharding import Sharding
from voxload.engine.model.sync_batch_norm import batch_norm_of_world
from voxload.engine.run.collectives import all_sum
from voxload.engine.run.statistics import Pool, Scaling, normalised, rescaled, wide_type

_BATCH = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
_INSTANCE = ("input", "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps")
_GROUP = ("input", "num_groups", "weight", "bias", "eps")
NAMES: Mapping[Any, tuple[str, ...]] = {
    functional.batch_norm: _BATCH,
    batch_norm_of_world: _BATCH,
    functional.instance_norm: _INSTANCE,
    functional.group_norm: _GROUP,
}
"""Functions, and the names of their arguments."""
_DEFAULTS: Mapping[str, Any] = {"training": False, "use_input_stats": True, "momentum": 0.1, "eps": 1e-5}
_SPATIAL = 3
"""Spatial dimensions of a volume, of which statistics are taken."""


@dataclass(frozen=True, slots=True)
class Normalise:
    """A normalisation whose sums are taken over all blocks."""

    shape: tuple[int, ...]
    """Shape of the whole input."""
    axes: frozenset[int]
    """Axes of the grid along which it is cut: along others, several ranks have one and the same block."""
    channels: Sharding
    """Cut of its channels."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Normalise; see Action."""
        given = _given(function, args, kwargs)
        x: Tensor = given["input"]
        flat = x.reshape(*x.shape[:2], *x.shape[2:], *(1,) * (2 + _SPATIAL - x.ndim))
        scaling = Scaling(self._own(given["weight"], here), self._own(given["bias"], here), given["eps"])
        uses_given = not given.get("training", given.get("use_input_stats", True))
        if uses_given:
            mean, variance = (self._own(given[name], here) for name in ("running_mean", "running_var"))
            return rescaled(flat, mean, variance, scaling).reshape(x.shape)
        count: Any = prod(self.shape[2:])
        groups, is_world = 0, function is batch_norm_of_world
        if is_world:
            count = count * _samples(x, here)
        elif function is functional.batch_norm:
            count *= self.shape[0]
        elif function is functional.instance_norm:
            groups = self.shape[1]
        else:
            groups = given["num_groups"]
            count *= self.shape[1] // groups
        copies = prod(blocks for axis, blocks in enumerate(here.mesh) if axis not in self.axes)
        own = None
        if not self.channels.is_whole:
            places = self.channels.positions(0, here.coords)
            own = places[0] if places else 0, len(places), self.shape[1]
        pool = Pool(groups, count * copies, here.exchange, is_world, own)
        y, mean, variance = normalised(flat, pool, scaling)
        _follow(given, function, (mean, variance), count)
        return y.reshape(x.shape)

    def _own(self, values: Any, here: Context) -> Any:
        """Return what this rank's channels have of one value for each."""
        return None if values is None else self.channels.block(values, here.coords)


def _samples(x: Tensor, here: Context) -> Tensor:
    """Return the samples of all groups: every rank of a group has the group's."""
    own = torch.full((), float(x.shape[0]), dtype=torch.float64, device=x.device)
    return all_sum(own, here.exchange, world=True) / prod(here.mesh)


def normalise(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a normalisation does: blocks stay where they are; see Rule."""
    cut = cuts[0]
    if len(cuts) > 1:
        raise NoRule("its weights depend on the volume")
    if len(cut.dims) > 2 + _SPATIAL or cut.axes(0):
        raise NoRule("samples are cut")
    widths = (hi - lo for factor in cut.dims[1][:-1] for lo, hi in pairwise(factor.bounds or (0, factor.extent)))
    if any(width > 1 for width in widths):
        raise NoRule("ranks have channels that are no neighbours")
    return Ruling((cut,), (cut,), Normalise(cut.shape, cut.axes(), Sharding(cut.dims[1:2])))


def _given(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by their names."""
    found = bound(NAMES[function], args, kwargs)
    return {name: _DEFAULTS.get(name) if value is None else value for name, value in found.items()}


def _follow(given: Mapping[str, Any], function: Any, moments: tuple[Tensor, Tensor], count: Any) -> None:
    """Move running statistics towards those of this pass; not again where a pass is repeated for its gradients."""
    is_repeated = torch._C._current_graph_task_id() != -1  # noqa: SLF001 - torch has no public way to ask
    if given.get("running_mean") is None or is_repeated:
        return
    mean, variance = (each.mean(0) if function is functional.instance_norm else each[0] for each in moments)
    unbiased = variance * (count / (count - 1))
    for running, now in ((given["running_mean"], mean), (given["running_var"], unbiased)):
        running.copy_((1 - given["momentum"]) * running + given["momentum"] * now.to(running.dtype))


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

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
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

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
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


def softmax(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what a softmax does; see Rule."""
    dim, cut = _softmax(call.args, call.kwargs)["dim"], cuts[0]
    if not isinstance(dim, int) or not cut.axes(dim % len(cut.dims)):
        return along(call, cuts, wishes)
    partial = Partial.over(cut, (dim % len(cut.dims),))
    action = Softmax(partial, call.function.__name__ == "log_softmax", call.made[0].dtype)
    return Ruling((cut,), (cut,), action)


def norm(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
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
