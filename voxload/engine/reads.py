"""Reads: which names the ``forward`` of a network reads beside its layers, in itself and in functions that it calls.

A trace keeps what they stood for. Names are found in the code, in which every one of them is listed; torch's own
functions are not looked into.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from voxload.engine.values import CODE, MISSING, OPAQUE

_LIBRARIES = ("torch.", "builtins.", "numpy.")
_MOST_FUNCTIONS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a name outside of the network has its value."""

    name: str
    """As the code has it."""
    space: Mapping[str, Any] | types.CellType
    """The globals or attributes that hold it, or the cell of a closure."""

    @property
    def value(self) -> Any:
        """What is there now."""
        if isinstance(self.space, types.CellType):
            try:
                return self.space.cell_contents
            except ValueError:  # nothing yet
                return MISSING
        return self.space.get(self.name.rpartition(".")[2], MISSING)


@dataclass(slots=True)
class Reads:
    """What was found."""

    names: set[str] = field(default_factory=set)
    """Every name that may be one of an attribute."""
    places: dict[tuple[int, str], Place] = field(default_factory=dict)
    """Every name outside that stands for a value, no function, class, layer or tensor."""


def is_library(thing: Any) -> bool:
    """Tell whether a class or function is torch's, numpy's or Python's."""
    return f"{getattr(thing, '__module__', '')}.".startswith(_LIBRARIES)


def find_reads(modules: Iterable[nn.Module]) -> Reads:
    """Return what the ``forward`` of the modules that are not torch's read."""
    found = Reads()
    waiting: list[tuple[types.FunctionType, type]] = []
    for module in modules:
        forward = getattr(module.forward, "__func__", module.forward)
        if isinstance(forward, types.FunctionType):
            waiting.append((forward, type(module)))
        waiting += [(held, type(module)) for held in vars(module).values() if isinstance(held, types.FunctionType)]
    seen: set[tuple[int, int]] = set()
    while waiting and len(seen) < _MOST_FUNCTIONS:
        function, owner = waiting.pop()
        key = id(function.__code__), id(owner)
        if key in seen or is_library(function):
            continue
        seen.add(key)
        names = {name for code in _codes(function.__code__) for name in _listed(code)}
        found.names |= names
        waiting += [(method, owner) for method in _methods(owner, names)]
        for place in _places(function, names):
            value = place.value
            if isinstance(value, types.FunctionType):
                waiting.append((value, owner))
            elif isinstance(value, type) and not is_library(value):
                waiting += [(method, value) for method in _methods(value, names | {"__init__", "__call__", "apply"})]
            elif value is not MISSING and not isinstance(value, (*CODE, *OPAQUE)):
                found.places[id(place.space), place.name] = place
    return found


def _places(function: types.FunctionType, names: Iterable[str]) -> Iterator[Place]:
    """Yield the places of a function's globals and closure, and of attributes of modules and classes among them."""
    spaces: list[tuple[str, Any]] = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield (place := Place(name, cell))
        spaces.append((name, place.value))
    for name in names:
        if name in function.__globals__ and not name.startswith("__"):
            yield Place(name, function.__globals__)
            spaces.append((name, function.__globals__[name]))
    for name, space in spaces:
        if isinstance(space, type | types.ModuleType) and not f"{space.__name__}.".startswith(_LIBRARIES):
            yield from (Place(f"{name}.{inner}", vars(space)) for inner in names if inner in vars(space))


def _methods(owner: type, names: Iterable[str]) -> Iterator[types.FunctionType]:
    """Yield the functions and properties of a class, and of those that it is derived from, that have these names."""
    for kind in owner.__mro__:
        for name in names:
            method = vars(kind).get(name)
            method = getattr(method, "fget", getattr(method, "__func__", method))
            if isinstance(method, types.FunctionType):
                yield method


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _listed(code: types.CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in it, and texts that ``getattr`` may take for one."""
    yield from code.co_names
    yield from (text for text in code.co_consts if isinstance(text, str) and text.isidentifier())
