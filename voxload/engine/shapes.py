"""Shapes: what every operation of a network makes of a volume, without computing or holding any of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from voxload.engine.forward.synced import synced
from voxload.errors import UsageError

CHANNEL_NAMES = ("in_channels", "num_features", "num_channels")
"""Attributes of layers that tell the channels of their input."""


def shapes_of(model: nn.Module, graph: fx.Graph, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each operation's result by its name, for one sample of spatial `shape` in one process.

    Operations whose result is no single tensor are left out.

    Raises
    ------
    UsageError
        When the network does not fit the volume, or nothing tells how many channels it takes.
    """
    # Without data a network costs nothing, but a copy with data would cost as much as itself.
    with torch.device("meta"):
        whole = on_meta(model)
        x = torch.empty(1, _channels(model, graph), *shape)
    module = fx.GraphModule(whole, graph)
    try:
        with torch.no_grad():
            ShapeProp(module).propagate(x)
    except RuntimeError as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise UsageError(f"{type(model).__name__} on {tuple(shape)}", found=reason) from error
    found = {}
    for node in module.graph.nodes:
        meta: Any = node.meta.get("tensor_meta")
        if hasattr(meta, "shape"):
            found[node.name] = tuple(meta.shape)
    return found


def on_meta(model: nn.Module) -> nn.Module:
    """Return a copy of `model` whose parameters and buffers have shapes only."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = torch.empty_like(tensor, device="meta", dtype=torch.float32 if tensor.is_floating_point() else None)
        memo[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
    twin = copy.deepcopy(model, memo)
    synced(twin)  # torch's own asks for GPUs
    return twin


def _channels(model: nn.Module, graph: fx.Graph) -> int:
    """Return the channels of the input, from the first layer that says how many it takes."""
    for node in graph.nodes:
        if node.op == "call_module":
            layer = model.get_submodule(str(node.target))
            for name in CHANNEL_NAMES:
                if isinstance(getattr(layer, name, None), int):
                    return int(getattr(layer, name))
    raise UsageError(
        f"channels of {type(model).__name__}'s input", found="no layer that tells them", expected="a convolution"
    )
