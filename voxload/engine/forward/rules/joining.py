"""Functions that join tensors along a dimension, or part one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from voxload.engine.forward.recording import Call, Given
from voxload.engine.forward.ruling import NoRule, Ruling, Same, Wishes
from voxload.engine.forward.sharding import Sharding

STACKS: frozenset[Any] = frozenset([torch.stack])
CONCATENATIONS: frozenset[Any] = frozenset([torch.cat, torch.concat, torch.concatenate])
PARTITIONS: frozenset[Any] = frozenset(
    [
        *(getattr(torch, name) for name in ("chunk", "split", "tensor_split", "unbind", "narrow", "select")),
        *(getattr(Tensor, name) for name in ("chunk", "split", "tensor_split", "unbind", "narrow", "select")),
    ]
)


def concatenate(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what joins values along a dimension that is whole; all are brought to the cut of the first; see Rule."""
    if any(isinstance(each, Given) for each in call.args[0]):
        raise NoRule("it joins a volume with a tensor that every rank has whole")
    dim = _dimension(call, 1, len(cuts[0].dims))
    (made,) = call.made
    cut = cuts[0].whole_along([dim])
    inputs = tuple(cut.with_dim(dim, Sharding.whole(value.shape).dims[dim]) for value in call.taken)
    return Ruling(inputs, (cut.with_dim(dim, Sharding.whole(made.shape).dims[dim]),), Same())


def stack(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what stacks values along a new dimension; all are brought to the cut of the first; see Rule."""
    if any(isinstance(each, Given) for each in call.args[0]):
        raise NoRule("it stacks a volume on a tensor that every rank has whole")
    dim = _dimension(call, 1, len(cuts[0].dims) + 1)
    (made,) = call.made
    dims = (*cuts[0].dims[:dim], Sharding.whole(made.shape).dims[dim], *cuts[0].dims[dim:])
    return Ruling((cuts[0],) * len(cuts), (Sharding(dims),), Same())


def part(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what parts a value along a dimension that is whole; see Rule."""
    name = call.function.__name__
    place = 1 if name in {"unbind", "narrow", "select"} else 2
    dim = _dimension(call, place, len(cuts[0].dims))
    cut = cuts[0].whole_along([dim])
    results = []
    for made in call.made:
        if name in {"unbind", "select"}:
            results.append(Sharding((*cut.dims[:dim], *cut.dims[dim + 1 :])))
        else:
            results.append(cut.with_dim(dim, Sharding.whole(made.shape).dims[dim]))
    return Ruling((cut,), tuple(results), Same())


def _dimension(call: Call, place: int, count: int) -> int:
    """Return the dimension that is given by place or by name, counted from the front."""
    given = call.args[place] if len(call.args) > place else call.kwargs.get("dim", 0)
    return int(given) % count
