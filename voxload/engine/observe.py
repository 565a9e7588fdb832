"""Observe: what those who watch the engine's operators run, on tensors with data or without, must know of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from types import CodeType
from typing import Any

from torch import Tensor

from voxload.engine.arithmetic.axis_plan import Message, part_of
from voxload.engine.graph import codegen

_GATHER, _SCATTER, _SUM = "voxload.gather", "voxload.scatter_add", "voxload.all_sum"
_LAYERS = frozenset([codegen.layer.__code__, codegen.drop.__code__])


@dataclass(frozen=True, slots=True)
class Messages:
    """What one rank exchanges with others along an axis of the grid, all of it at once."""

    axis: int
    """0, 1 or 2 for d, h, w."""
    sent: tuple[int, ...]
    """Bytes of each message that it sends."""
    received: tuple[int, ...]
    """Bytes of each message that it receives."""


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over ranks, of which each has all (all-reduce)."""

    nbytes: int
    """Of what is summed."""
    is_world: bool
    """Over all ranks of the job; else over those of the sample group."""


def exchanged(name: str, args: Sequence[Any]) -> Messages | Total | None:
    """Return what an operator of torch exchanges, by its name and its positional arguments; None for nothing."""
    if name == _SUM:
        return Total(_nbytes(args[0]), bool(args[1]))
    if name not in (_GATHER, _SCATTER):
        return None
    x, part = args[0], part_of(args[1])
    position = prod(extent for dim, extent in enumerate(x.shape) if dim != part.dim) * x.element_size()
    ways = (part.outgoing, part.incoming) if name == _GATHER else (part.incoming, part.outgoing)
    sent, received = (tuple(_sizes(way, position)) for way in ways)
    return Messages(part.axis, sent, received)


def runs_layer(code: CodeType) -> bool:
    """Tell whether code runs a layer in the place of its own forward: its local variable ``module`` is that layer."""
    return code in _LAYERS


def _sizes(messages: tuple[Message, ...], position: int) -> Iterator[int]:
    """Yield the bytes of messages that are sent: those without any are not."""
    for _, runs in messages:
        if size := sum(run.length for run in runs) * position:
            yield size


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
