"""Values: values of Python as they are, to be compared with what they are later.

A trace keeps every number, text and function that ``forward`` read on the way. Where one of them is changed afterwards,
what was traced goes on with the old one.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Set as AbstractSet
from typing import Any, Final

import torch

_PLAIN = (bool, int, complex, str, bytes, type(None), enum.Enum, torch.dtype, torch.device)
_MOST_ENTRIES = 256
"""Entries of a container that are looked at; larger ones are data, of which a trace keeps nothing."""
_MOST_DEPTH = 4
CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
OPAQUE = (torch.nn.Module, torch.Tensor, types.ModuleType)
"""What is no constant of a trace: tensors are its inputs or are refused, layers are looked at one by one."""


class _Nothing(enum.Enum):
    MISSING = "nothing"


MISSING: Final = _Nothing.MISSING
"""Stands for the value of a name that there is not."""


class Same:
    """An object that is compared by identity, and held, so that no other one gets its place."""

    __slots__ = ("_held",)

    def __init__(self, held: Any) -> None:
        self._held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._held is self._held

    def __hash__(self) -> int:
        return id(self._held)


def frozen(value: Any, names: AbstractSet[str], depth: int = 0) -> Any:
    """Return something that equals what this returns later as long as the value is what it is now.

    Plain values and containers of them are compared by what they hold, objects by identity and by those of their
    attributes that are among `names`, everything else by identity. Tensors and layers always equal themselves.
    """
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, float):
        return value.hex()  # a NaN equals itself then
    if isinstance(value, OPAQUE):
        return type(value)
    if isinstance(value, types.MethodType):
        return Same(value.__self__), Same(value.__func__)
    if isinstance(value, CODE) or depth >= _MOST_DEPTH:
        return Same(value)
    if isinstance(value, list | tuple | set | frozenset | dict):
        if len(value) > _MOST_ENTRIES:
            return Same(value), len(value)
        entries = [frozen(each, names, depth + 1) for each in value]
        held = [frozen(each, names, depth + 1) for each in value.values()] if isinstance(value, dict) else []
        return type(value), entries, held
    attributes = getattr(value, "__dict__", {})
    known = sorted(names & attributes.keys())
    return Same(value), [(name, frozen(attributes[name], names, depth + 1)) for name in known]


def is_fixed(value: Any) -> bool:
    """Tell whether an object always holds what it holds now."""
    if isinstance(value, tuple):
        return all(map(is_fixed, value))
    return isinstance(value, (float, types.FunctionType, types.BuiltinFunctionType, type, *_PLAIN))
