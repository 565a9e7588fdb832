"""Products of matrices, einsum and attention among them: what is summed over is whole, what stays may be cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call, Given, Value
from voxload.engine.forward.rule import Context, NoRule, Preferences, Ruling, bound
from voxload.engine.forward.rules.pointwise import Pointwise, under
from voxload.engine.forward.sharding import Dim, Sharding
from voxload.engine.run.tensors import sent

PRODUCTS: frozenset[Any] = frozenset(
    [torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.mm, Tensor.mm]
)
EINSUM: frozenset[Any] = frozenset([torch.einsum, torch.functional.einsum])
_MATRIX = 2
"""Dimensions of a matrix."""


def multiply(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a product of matrices does: leading dimensions and rows may be cut; see Rule."""
    if len(call.args) < _MATRIX:
        raise NoRule("its second factor has a name")
    one, other = call.args[0], call.args[1]
    if min(len(one.shape), len(other.shape)) < _MATRIX:
        raise NoRule("it takes a vector")
    lead = max(len(one.shape), len(other.shape)) - _MATRIX
    names = "abcdefghijklmnopqrst"[:lead]
    terms = [names[lead - (len(each.shape) - _MATRIX) :] + pair for each, pair in ((one, "xy"), (other, "yz"))]
    return _contracted(call, cuts, (terms, names + "xz"), (one, other))


def einsum(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a sum of products does; see Rule."""
    equation, *operands = call.args
    if not isinstance(equation, str):
        raise NoRule("its equation is no text")
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow or "." in equation:
        raise NoRule("its equation does not name all dimensions")
    return _contracted(call, cuts, (left.split(","), right), tuple(operands))


def _contracted(
    call: Call, cuts: tuple[Sharding, ...], names: tuple[list[str], str], operands: tuple[Any, ...]
) -> Ruling:
    """Return the ruling of a sum of products whose dimensions have these names."""
    terms, result = names
    waiting = iter(cuts)
    dims: dict[str, Dim] = {}
    used: set[int] = set()
    given = [next(waiting) if isinstance(each, Value) else None for each in operands]
    for cut, term in zip(given, terms, strict=True):
        for number, name in enumerate(term if cut is not None else ""):
            axes = cut.axes(number) if cut is not None else frozenset()
            if axes and name in result and name not in dims and not axes & used and cut is not None:
                dims[name] = cut.dims[number]
                used |= axes
    (made,) = call.made
    extents = dict(zip(result, made.shape, strict=True))
    inputs, parts = [], []
    for place, (cut, term, operand) in enumerate(zip(given, terms, operands, strict=True)):
        whole = Sharding.whole(operand.shape)
        wanted = Sharding(
            tuple(
                dims[name] if name in dims and operand.shape[number] == extents[name] else whole.dims[number]
                for number, name in enumerate(term)
            )
        )
        if cut is not None:
            inputs.append(wanted)
        elif isinstance(operand, Given) and not wanted.is_whole:
            parts.append((place + len(call.args) - len(operands), wanted))
    out = Sharding.whole(made.shape)
    for number, name in enumerate(result):
        if name in dims:
            out = out.with_dim(number, dims[name])
    return Ruling(tuple(inputs), (out,), Pointwise(tuple(parts)))


ATTENTION: frozenset[Any] = frozenset([functional.scaled_dot_product_attention])
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


@dataclass(frozen=True, slots=True)
class Attend:
    """Attention of this rank's queries to all keys."""

    cut: Sharding
    """Cut of the queries."""
    mask: Sharding | None
    """Cut of which this rank takes its part of a mask that every rank has whole."""
    dtype: torch.dtype
    """Type of the result, which autocast may have chosen."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Attend; see Action."""
        given = _given(args, kwargs)
        query, key = given["query"], given["key"]
        if self.mask is not None:
            given["attn_mask"] = self.mask.block(given["attn_mask"], here.coords)
        if given["is_causal"]:
            # Torch counts rows from the first one of the whole.
            rows = sent(torch.tensor(self.cut.positions(len(self.cut.dims) - 2, here.coords)), query.device)
            given |= {"is_causal": False, "attn_mask": rows[:, None] >= torch.arange(key.shape[-2], device=key.device)}
        if query.numel():
            return function(**given)
        # A rank without queries stays part of the graph: its peers wait for what it sends back.
        nothing = (key[..., :1, :1].sum() + given["value"].sum()) * 0
        result = query.new_zeros(*query.shape[:-1], given["value"].shape[-1]) + query.sum() + nothing
        return result.to(self.dtype)


def attend(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what attention does: samples, heads and queries may be cut; see Rule."""
    given, (made,) = _given(call.args, call.kwargs), call.made
    if given["dropout_p"]:
        raise NoRule("it drops out by chance, which knows nothing of blocks")
    if isinstance(given["attn_mask"], Value):
        raise NoRule("its mask depends on the volume")
    lead = len(cuts[0].dims) - _MATRIX
    cut = cuts[0].whole_along([lead + 1])
    if any(number < lead for number, *_ in cut.cuts()) and (
        given["enable_gqa"] or isinstance(given["key"], Given) or isinstance(given["value"], Given)
    ):
        raise NoRule("samples or heads are cut of the queries alone")
    inputs = [cut]
    for value in call.taken[1:]:
        # Samples and heads are those of the queries, and all keys are there.
        whole = Sharding.whole(value.shape)
        shared = (cut.dims[number] if value.shape[number] == cut.shape[number] else () for number in range(lead))
        inputs.append(Sharding((*shared, *whole.dims[lead:])))
    result = Sharding((*cut.dims[:-1], Sharding.whole(made.shape).dims[-1]))
    mask = None
    if isinstance(given["attn_mask"], Given):
        scores = Sharding((*cut.dims[:-1], *Sharding.whole(given["key"].shape[-2:-1]).dims))
        mask = under(scores, given["attn_mask"].shape)
    return Ruling(tuple(inputs), (result,), Attend(cut, None if mask is None or mask.is_whole else mask, made.dtype))


def _given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by their names, with torch's defaults."""
    found = bound(_NAMES, args, kwargs)
    chances = {"dropout_p": found["dropout_p"] or 0.0}
    return found | chances | {name: bool(found[name]) for name in ("is_causal", "enable_gqa")}
