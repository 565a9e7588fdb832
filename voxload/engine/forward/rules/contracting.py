"""Products of matrices and sums of products: what is summed over is whole, what stays may be cut."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from voxload.engine.forward.recording import Call, Given, Value
from voxload.engine.forward.rules.pointwise import Pointwise
from voxload.engine.forward.ruling import NoRule, Ruling, Wishes
from voxload.engine.forward.sharding import Dim, Sharding

PRODUCTS: frozenset[Any] = frozenset(
    [torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.mm, Tensor.mm]
)
EINSUM: frozenset[Any] = frozenset([torch.einsum, torch.functional.einsum])
_MATRIX = 2
"""Dimensions of a matrix."""


def multiply(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
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


def einsum(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
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
