"""Twins: copies of layers that share the layer's parameters and do something else with a block; and layers replaced."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

from torch import Tensor, nn


def with_forward(layer: nn.Module, forward: Callable[..., Tensor]) -> nn.Module:
    """Return `layer` with ``forward(layer, x, tile, ...)`` in place of its own; hooks go on working.

    Parameters, buffers and sub-modules are the layer's very objects.
    """
    twin: Any = copy.copy(layer)
    twin.forward = MethodType(forward, twin)
    return twin  # type: ignore[no-any-return] # the copy of a module is one


def replaced(now: Mapping[str, nn.Module | None], then: Mapping[str, nn.Module | None]) -> str | None:
    """Return the name of the first layer that is new, gone or another one; one that wraps the old one is none."""
    for name in now.keys() | then.keys():
        old, new = then.get(name), now.get(name)
        if old is new and name in now and name in then:
            continue
        if old is None or new is None or all(inner is not old for inner in new.modules()):
            return name
    return None
