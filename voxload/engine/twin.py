"""Twins: copies of layers that share the layer's parameters and do something else with a block."""

from __future__ import annotations

import copy
from collections.abc import Callable
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
