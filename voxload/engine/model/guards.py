"""Guards: whether a network still is what it was when its forward was traced.

Values: values of Python as they are, to be compared with what they are later. A trace keeps every number, text and
function that ``forward`` read on the way. Where one of them is changed afterwards, what was traced goes on with the
old one.

Reads: which names the ``forward`` of a network reads beside its layers, in itself and in functions that it calls. A
trace keeps what they stood for. Names are found in the code, in which every one of them is listed; torch's own
functions are not looked into.

Unchanged: whether a network still is what it was when ``forward`` was traced. The split form of a network goes on
with the numbers, flags, functions and layers that ``forward`` met then. Where one of them is another one now, in the
model or in its split form, a pass is refused: the trace no longer is the program.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn

from voxload.errors import UsageError

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


_LIBRARIES = ("torch.", "builtins.", "numpy.")
_MOST_FUNCTIONS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class NameReference:
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
class NamesRead:
    """What was found."""

    names: set[str] = field(default_factory=set)
    """Every name that may be one of an attribute."""
    places: dict[tuple[int, str], NameReference] = field(default_factory=dict)
    """Every name outside that stands for a value, no function, class, layer or tensor."""


def is_library(thing: Any) -> bool:
    """Tell whether a class or function is torch's, numpy's or Python's."""
    return f"{getattr(thing, '__module__', '')}.".startswith(_LIBRARIES)


def find_reads(modules: Iterable[nn.Module]) -> NamesRead:
    """Return what the ``forward`` of the modules that are not torch's read."""
    found = NamesRead()
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


def _places(function: types.FunctionType, names: Iterable[str]) -> Iterator[NameReference]:
    """Yield the places of a function's globals and closure, and of attributes of modules and classes among them."""
    spaces: list[tuple[str, Any]] = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield (place := NameReference(name, cell))
        spaces.append((name, place.value))
    for name in names:
        if name in function.__globals__ and not name.startswith("__"):
            yield NameReference(name, function.__globals__)
            spaces.append((name, function.__globals__[name]))
    for name, space in spaces:
        if isinstance(space, type | types.ModuleType) and not f"{space.__name__}.".startswith(_LIBRARIES):
            yield from (NameReference(f"{name}.{inner}", vars(space)) for inner in names if inner in vars(space))


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


_OWN = frozenset(vars(nn.Module()))
"""What every module has, such as its training mode: it is looked at elsewhere, or by torch."""
_LIVE = frozenset({"p", "eps", "momentum"})
"""Settings of layers with a split form that are read in every pass."""
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True, slots=True)
class _Attribute:
    """One attribute that was read."""

    name: str
    held: Any
    """Its value, the object itself."""
    value: Any
    """What `frozen` made of it."""
    is_fixed: bool
    """Whether the same object is the same value for ever."""


class TraceGuards:
    """The attributes, layers and globals that a network had when it was made to run split.

    Parameters
    ----------
    model
        The network as it was given.
    mirrored
        The modules of its split form, in the order of the model's own.
    """

    def __init__(self, model: nn.Module, mirrored: Sequence[nn.Module]) -> None:
        named = list(zip(model.named_modules(), mirrored, strict=True))
        reads = find_reads(module for (_, module), _ in named if not is_library(type(module)))
        self._names = frozenset(reads.names)
        self._places = _Places([(place, frozen(place.value, self._names)) for place in reads.places.values()])
        self._attributes: list[tuple[str, nn.Module, list[_Attribute]]] = []
        self._children: list[tuple[str, nn.Module, dict[str, nn.Module | None]]] = []
        for (path, module), twin in named:
            where = f"layer {path!r}" if path else f"the {type(module).__name__}"
            is_looked_into = not is_library(type(module)) or isinstance(module, _CONTAINERS)
            for one in (module,) if twin is module else (module, twin):
                if names := self._read(module, twin):
                    self._attributes.append((where, one, list(self._held(one, names))))
                if is_looked_into:
                    self._children.append((where, one, dict(one._modules)))  # noqa: SLF001 - torch's named_children leaves out those that are None

    def difference(self) -> UsageError | None:
        """Return the error that names the first thing that is another one now, or None; takes microseconds a layer."""
        for where, module, attributes in self._attributes:
            held = vars(module)
            for one in attributes:
                now = held.get(one.name, MISSING)
                if not (one.is_fixed and now is one.held) and frozen(now, self._names) != one.value:
                    return _error(f"attribute {one.name!r} of {where}")
        for where, module, children in self._children:
            if (found := replaced(module._modules, children)) is not None:  # noqa: SLF001 - named_children leaves out those that are None
                return _error(f"layer {found!r} in {where}")
        name = self._places.changed(self._names)
        return None if name is None else _error(f"{name!r}, which forward reads,")

    def _read(self, module: nn.Module, twin: nn.Module) -> AbstractSet[str]:
        """Return the attributes of a module that its trace, or its split form, has kept."""
        if not is_library(type(module)):
            return (vars(module).keys() - _OWN) & self._names
        # A layer that is run as it is reads its own attributes; of one that is not, the form has them.
        return vars(module).keys() - _OWN - _LIVE if twin is not module else frozenset()

    def _held(self, module: nn.Module, names: AbstractSet[str]) -> Iterator[_Attribute]:
        for name in sorted(names):
            held = vars(module).get(name, MISSING)
            yield _Attribute(name, held, frozen(held, self._names), is_fixed(held))


class _Places:
    """Names outside of the network; every copy of that reads the same ones."""

    def __init__(self, places: list[tuple[NameReference, Any]]) -> None:
        self._places = places

    def __deepcopy__(self, memo: dict[int, object]) -> _Places:
        return self

    def changed(self, names: frozenset[str]) -> str | None:
        """Return the first that stands for something else."""
        return next((place.name for place, value in self._places if frozen(place.value, names) != value), None)


def _error(what: str) -> UsageError:
    return UsageError(
        "a split network",
        found=f"{what} changed",
        expected="what it was when voxload.engine.shard traced forward",
        remedy="split the model again after such a change, or keep what changes in a buffer",
    )


def replaced(now: Mapping[str, nn.Module | None], then: Mapping[str, nn.Module | None]) -> str | None:
    """Return the name of the first layer that is new, gone or another one; one that wraps the old one is none."""
    for name in now.keys() | then.keys():
        old, new = then.get(name), now.get(name)
        if old is new and name in now and name in then:
            continue
        if old is None or new is None or all(inner is not old for inner in new.modules()):
            return name
    return None
