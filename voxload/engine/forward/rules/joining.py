"""Functions that join tensors along a dimension, or part one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from voxload.engine.forward.recording import Call, Given, Value
from voxload.engine.forward.rules.pointwise import Pointwise
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
    """Return what joins tensors along a dimension that is whole; all are brought to the cut of the first; see Rule.

    Of those that every rank has whole, such as coordinates, it takes its part.
    """
    dim = _dimension(call, 1, len(cuts[0].dims))
    (made,) = call.made
    cut = cuts[0].whole_along([dim])
    if any(len(each.shape) != len(cut.dims) for each in call.args[0]):
        raise NoRule("it joins a volume with an empty tensor of another number of dimensions")
    taken = [cut.with_dim(dim, Sharding.whole(each.shape).dims[dim]) for each in call.args[0]]
    inputs = tuple(each for each, value in zip(taken, call.args[0], strict=True) if isinstance(value, Value))
    return Ruling(inputs, (cut.with_dim(dim, Sharding.whole(made.shape).dims[dim]),), _joined(call, taken))


def stack(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what stacks values along a new dimension; all are brought to the cut of the first; see Rule."""
    dim = _dimension(call, 1, len(cuts[0].dims) + 1)
    (made,) = call.made
    dims = (*cuts[0].dims[:dim], Sharding.whole(made.shape).dims[dim], *cuts[0].dims[dim:])
    return Ruling((cuts[0],) * len(cuts), (Sharding(dims),), _joined(call, [cuts[0]] * len(call.args[0])))


def _joined(call: Call, taken: Sequence[Sharding]) -> Pointwise:
    """Return the call on blocks, and on this rank's part of tensors that every rank has whole."""
    parts = tuple(
        (place, cut)
        for place, (cut, each) in enumerate(zip(taken, call.args[0], strict=True))
        if isinstance(each, Given) and not cut.is_whole
    )
    return Pointwise(parts)


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
