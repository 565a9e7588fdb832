"""Runs of a network on torch's meta device: which volumes it takes and what it makes of them, without any voxel."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from voxload.engine.model.pytrees import mapped
from voxload.engine.model.sync_batch_norm import synced
from voxload.errors import UsageError


@dataclass(slots=True)
class RandomUse:
    """What was drawn."""

    others: bool = False
    """Whether numbers of Python or numpy were, which differ from rank to rank."""


@contextmanager
def random_state_kept() -> Iterator[RandomUse]:
    """Put back the random numbers of torch on the host, of Python and of numpy; tell afterwards what was drawn."""
    drawn = RandomUse()
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - that of networks that use it
    try:
        with torch.random.fork_rng(devices=[]):
            yield drawn
    finally:
        drawn.others = python != random.getstate() or _comparable(numpy) != _comparable(np.random.get_state())  # noqa: NPY002 - as above
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002 - as above


def _comparable(state: Any) -> tuple[Any, ...]:
    """Return the state of numpy's random numbers with bytes in the place of its array."""
    name, keys, *others = state
    return name, keys.tobytes(), *others


@contextmanager
def fast_paths_off() -> Iterator[None]:
    """Let torch's transformers take no fast path, which is for tensors of its own class that have values."""
    is_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)


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


BATCH = 2
"""Samples: a normalisation in training refuses a batch of one where nothing is left of the extents."""
_CHANNELS = (1, 2, 3, 4)
"""Channels that are tried for a network that does not tell them."""
_EXTENTS = (8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Extents that are tried, in this order, for a volume that is small and is split all the same."""
_NARROWEST = 4
"""Voxels of a block that is cut from such a volume."""
_MOST_VOXELS = 128**3
"""Voxels of a volume that is computed with several times in float64, without being asked for by its extents."""


def whole_size(
    model: nn.Module, shape: Sequence[int], channels: int | None = None, *, args: Sequence[Any] = ()
) -> tuple[int, ...] | None:
    """Return the extents (B, C, D, H, W) of a batch of volumes of this shape that `model` takes.

    None where it takes none; nothing is computed. Channels are looked for where they are not given; `args` are what
    forward takes beside the volume. What asks for values takes it as far as can be told.
    """
    tried = _tried(model, shape, channels, args)
    return next((size for size, error in tried if error is None or "meta" in str(error).lower()), None)


def why_none(model: nn.Module, shape: Sequence[int]) -> str:
    """Return in which error forward ends for the volume of this shape that it should take first; empty for none."""
    _, error = next(_tried(model, shape, None, ()))
    return "" if error is None else f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _tried(
    model: nn.Module, shape: Sequence[int], channels: int | None, args: Sequence[Any]
) -> Iterator[tuple[tuple[int, ...], Exception | None]]:
    """Yield batches that a model may take, the likeliest first, and the error in which forward ends for each."""
    told = (getattr(module, name, None) for module in model.modules() for name in CHANNEL_NAMES)
    first = next((one for one in told if isinstance(one, int)), None)
    wanted = (channels,) if channels else (first, *_CHANNELS) if first else _CHANNELS
    twin = on_meta(model)
    more = mapped(tuple(args), lambda leaf: leaf.to("meta") if isinstance(leaf, Tensor) else leaf)
    for each in wanted:
        size, found = (BATCH, each, *shape), None
        try:
            with torch.no_grad(), random_state_kept(), fast_paths_off(), torch.device("meta"):
                twin(torch.empty(size), *more)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's forward raises for a size that it does not take
            found = error
        yield size, found


def small_sizes(model: nn.Module, shape: Sequence[int] | None, spatial: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield batches to compare with: the smallest volumes that `model` takes and `spatial` can cut, rising.

    The last one has the extents `shape`, for a network that takes no others. None is beyond 128^3 voxels.
    """
    count = 3 if shape is None else len(shape)
    shapes: list[tuple[int, ...]] = [(extent,) * count for extent in _EXTENTS if extent >= _NARROWEST * max(spatial)]
    if shape is not None:
        shapes = [*(one for one in shapes if prod(one) < prod(shape)), tuple(shape)]
    for one in shapes:
        size = whole_size(model, one) if prod(one) <= _MOST_VOXELS else None
        if size is not None:
            yield size


def require_module(model: object) -> None:
    """Raise UsageError for what is no network."""
    if not isinstance(model, nn.Module):
        raise UsageError("model", found=type(model).__name__, expected="a torch.nn.Module")


def takes_more(model: nn.Module) -> bool:
    """Tell whether forward can be given more than one argument."""
    parameters = list(inspect.signature(type(model).forward).parameters.values())[1:]
    return len(parameters) > 1 or any(each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD} for each in parameters)
