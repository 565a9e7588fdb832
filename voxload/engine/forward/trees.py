"""Trees: arguments and results of calls, which hold tensors in lists, tuples and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """Return a tree with what `function` gives of every leaf; shapes become tuples, named tuples stay what they are."""
    kind = type(tree)
    if isinstance(tree, tuple):
        parts = [mapped(each, function) for each in tree]
        if hasattr(kind, "n_sequence_fields"):  # torch's own, such as what max and sort give
            return kind(parts)
        return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)
    if kind is list:
        return [mapped(each, function) for each in tree]
    if isinstance(tree, dict):
        return {name: mapped(each, function) for name, each in tree.items()}
    return function(tree)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of a tree, in order."""
    if isinstance(tree, tuple | list):
        for each in tree:
            yield from leaves(each)
    elif isinstance(tree, dict):
        for each in tree.values():
            yield from leaves(each)
    else:
        yield tree


def token(tree: Any) -> Any:
    """Return a tree as something that can be compared and hashed; trees that are equal give equals."""
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
    try:
        hash(tree)
    except TypeError:
        return repr(tree)
    return tree
