"""Unchanged: whether a network still is what it was when ``forward`` was traced.

The split form of a network goes on with the numbers, flags, functions and layers that ``forward`` met then. Where one
of them is another one now, in the model or in its split form, a pass is refused: the trace no longer is the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from torch import nn

from voxload.engine.reads import Place, find_reads, is_library
from voxload.engine.twin import replaced
from voxload.engine.values import MISSING, frozen, is_fixed
from voxload.errors import UsageError

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


class Unchanged:
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

    def __init__(self, places: list[tuple[Place, Any]]) -> None:
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
