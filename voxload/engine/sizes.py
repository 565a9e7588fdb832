"""Sizes: batches of volumes that a network takes, found out on shapes alone."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.drawn import numbers_kept, slow_paths
from voxload.engine.forward.trees import mapped
from voxload.engine.shapes import CHANNEL_NAMES, on_meta
from voxload.errors import UsageError

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
            with torch.no_grad(), numbers_kept(), slow_paths(), torch.device("meta"):
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
