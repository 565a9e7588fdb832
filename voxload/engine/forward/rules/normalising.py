"""Normalisations with statistics of the whole volume."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call
from voxload.engine.forward.rules.windows import bound
from voxload.engine.forward.ruling import Here, NoRule, Ruling, Wishes
from voxload.engine.forward.sharding import Sharding
from voxload.engine.forward.synced import batch_norm_of_world
from voxload.engine.statistics import Pool, Scaling, normalised, rescaled
from voxload.engine.total import all_sum

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

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:
        """Normalise; see Action."""
        given = _given(function, args, kwargs)
        x: Tensor = given["input"]
        flat = x.reshape(*x.shape[:2], *x.shape[2:], *(1,) * (2 + _SPATIAL - x.ndim))
        scaling = Scaling(given["weight"], given["bias"], given["eps"])
        uses_given = not given.get("training", given.get("use_input_stats", True))
        if uses_given:
            return rescaled(flat, given["running_mean"], given["running_var"], scaling).reshape(x.shape)
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
        y, mean, variance = normalised(flat, Pool(groups, count * copies, here.exchange, is_world), scaling)
        _follow(given, function, (mean, variance), count)
        return y.reshape(x.shape)


def _samples(x: Tensor, here: Here) -> Tensor:
    """Return the samples of all groups: every rank of a group has the group's."""
    own = torch.full((), float(x.shape[0]), dtype=torch.float64, device=x.device)
    return all_sum(own, here.exchange, world=True) / prod(here.mesh)


def normalise(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a normalisation does: blocks stay where they are; see Rule."""
    cut = cuts[0]
    if len(cuts) > 1:
        raise NoRule("its weights depend on the volume")
    if len(cut.dims) > 2 + _SPATIAL or any(number < 2 for number, *_ in cut.cuts()):
        raise NoRule("samples or channels are cut")
    return Ruling((cut,), (cut,), Normalise(cut.shape, cut.axes()))


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
