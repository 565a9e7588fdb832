"""Trees: arguments and results of calls, which hold tensors in lists, tuples and dictionaries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree

PLAIN: set[type] = {int, float, bool, str, type(None), slice}
PLAIN |= {torch.dtype, torch.device, torch.Tensor, torch.nn.Parameter}
"""Classes of leaves: the first that are looked for, since most are of them."""
_HASHED = frozenset({int, str, type(None)})
TENSOR = "tensor"
"""What `token` is given for a tensor that every rank has whole, with its shape."""


class Leaf:
    """What stands in the place of a tensor; a data class of it is no tree."""

    __slots__ = ()


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """Return a tree with what `function` gives of every leaf; shapes become tuples, named tuples stay what they are."""
    kind = type(tree)
    if kind in PLAIN:
        return function(tree)
    if isinstance(tree, tuple):
        parts = [mapped(each, function) for each in tree]
        if hasattr(kind, "n_sequence_fields"):  # torch's own, such as what max and sort give
            return kind(parts)
        return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)
    if kind is list:
        return [mapped(each, function) for each in tree]
    if kind is dict:
        return {name: mapped(each, function) for name, each in tree.items()}
    if kind in _pytree.SUPPORTED_NODES:  # whatever a library has told torch of, such as the results of diffusers
        held, context = _pytree.SUPPORTED_NODES[kind].flatten_fn(tree)
        return _pytree.SUPPORTED_NODES[kind].unflatten_fn([mapped(each, function) for each in held], context)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type | Leaf):
        return dataclasses.replace(tree, **{name: mapped(each, function) for name, each in _fields(tree).items()})
    return function(tree)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of a tree, in order."""
    if type(tree) in PLAIN:
        yield tree
    elif isinstance(tree, tuple | list):
        for each in tree:
            yield from leaves(each)
    elif type(tree) is dict:
        for each in tree.values():
            yield from leaves(each)
    elif type(tree) in _pytree.SUPPORTED_NODES:
        for each in _pytree.SUPPORTED_NODES[type(tree)].flatten_fn(tree)[0]:
            yield from leaves(each)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type | Leaf):
        for each in _fields(tree).values():
            yield from leaves(each)
    else:
        yield tree


def _fields(tree: Any) -> dict[str, Any]:
    """Return what a data class holds and is made of."""
    return {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree) if field.init}


def token(tree: Any) -> Any:
    """Return a tree as something that can be compared and hashed; trees that are equal give equals."""
    if type(tree) in _HASHED:
        return tree
    if isinstance(tree, tuple | list):
        return tuple(map(token, tree))
    if isinstance(tree, dict):
        return tuple((name, token(each)) for name, each in sorted(tree.items()))
    if isinstance(tree, slice):
        return "slice", tree.start, tree.stop, tree.step
    if isinstance(tree, float):
        return tree.hex()  # a NaN equals itself then
    if isinstance(tree, bool):
        return "bool", tree  # which equals a number otherwise
    if isinstance(tree, torch.dtype | torch.device):
        return type(tree)  # a plan is the same for all: mixed precision runs what was recorded in another one
    try:
        hash(tree)
    except TypeError:
        return repr(tree)
    return tree
