"""The engine's one primitive: gather intervals along a grid axis, and its exact adjoint.

Gather fetches for each rank the positions that it needs; scatter-add carries values back to the owners of
these positions and adds them up. The two are transposes of each other for any plan, and each is the other's
derivative, so gradients of any order are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from voxload.engine.exchange.protocol import Exchange
from voxload.engine.plan import Part, Run

FIRST_AXIS = 2
"""Dimension of the first spatial axis in a (B, C, D, H, W) tensor."""


def gather(x: Tensor, part: Part, *, fill: float, exchange: Exchange) -> Tensor:
    """Return, for this rank, the positions of a split volume that `part` says it needs.

    Parameters
    ----------
    x
        This rank's block, (B, C, d, h, w), any floating dtype.
    part
        What to fetch along which axis.
    fill
        Value of positions outside the volume; it is a constant to autograd.
    exchange
        Carries the messages; every rank of the line must call this with its own part of one plan.
    """
    result: Tensor = _Gather.apply(x, part, fill, exchange)  # type: ignore[no-untyped-call] # torch leaves it untyped
    return result


def scatter_add(x: Tensor, part: Part, *, exchange: Exchange) -> Tensor:
    """Return this rank's block of the sum of what all ranks gathered: the adjoint of `gather`."""
    result: Tensor = _ScatterAdd.apply(x, part, exchange)  # type: ignore[no-untyped-call] # as above
    return result


class _Gather(torch.autograd.Function):
    """Autograd node of `gather`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: Part, fill: float, exchange: Exchange) -> Tensor:
        ctx.part, ctx.exchange = part, exchange
        return _collect(x, part, fill, exchange)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None, None]:
        return scatter_add(grads[0], ctx.part, exchange=ctx.exchange), None, None, None


class _ScatterAdd(torch.autograd.Function):
    """Autograd node of `scatter_add`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: Part, exchange: Exchange) -> Tensor:
        ctx.part, ctx.exchange = part, exchange
        return _spread(x, part, exchange)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        return gather(grads[0], ctx.part, fill=0.0, exchange=ctx.exchange), None, None


def _collect(x: Tensor, part: Part, fill: float, exchange: Exchange) -> Tensor:
    """Carry out a gather; the copy of the own positions runs while the messages travel."""
    dim = FIRST_AXIS + part.axis
    outgoing = {
        peer: torch.cat([x.narrow(dim, run.source, run.length) for run in runs], dim) for peer, runs in part.outgoing
    }
    incoming = {peer: x.new_empty(_resized(x, dim, _total(runs))) for peer, runs in part.incoming}
    pending = exchange.start(part.axis, _sendable(outgoing), _sendable(incoming))
    result = x.new_empty(_resized(x, dim, part.needed))
    for start, stop in part.gaps:
        result.narrow(dim, start, stop - start).fill_(fill)
    for run in part.here:
        result.narrow(dim, run.target, run.length).copy_(x.narrow(dim, run.source, run.length))
    pending.wait()
    for peer, runs in part.incoming:
        for run, slab in zip(runs, _unpacked(incoming[peer], runs, dim), strict=True):
            result.narrow(dim, run.target, run.length).copy_(slab)
    return result


def _spread(x: Tensor, part: Part, exchange: Exchange) -> Tensor:
    """Carry out a scatter-add: what came in goes back, in the same packing."""
    dim = FIRST_AXIS + part.axis
    outgoing = {
        peer: torch.cat([x.narrow(dim, run.target, run.length) for run in runs], dim) for peer, runs in part.incoming
    }
    incoming = {peer: x.new_empty(_resized(x, dim, _total(runs))) for peer, runs in part.outgoing}
    pending = exchange.start(part.axis, _sendable(outgoing), _sendable(incoming))
    result = x.new_zeros(_resized(x, dim, part.owned))
    for run in part.here:
        result.narrow(dim, run.source, run.length).add_(x.narrow(dim, run.target, run.length))
    pending.wait()
    # Peers are in a fixed order, so a sum of several halos has the same rounding on every run.
    for peer, runs in part.outgoing:
        for run, slab in zip(runs, _unpacked(incoming[peer], runs, dim), strict=True):
            result.narrow(dim, run.source, run.length).add_(slab)
    return result


def _sendable(tensors: dict[int, Tensor]) -> dict[int, Tensor]:
    """Leave out tensors without elements and make the others contiguous in memory.

    A block that is empty along another axis is so on the whole line: both sides leave the message out.
    """
    return {peer: tensor.contiguous() for peer, tensor in tensors.items() if tensor.numel()}


def _resized(x: Tensor, dim: int, extent: int) -> list[int]:
    """Return the shape of `x` with another extent along `dim`."""
    shape = list(x.shape)
    shape[dim] = extent
    return shape


def _total(runs: Sequence[Run]) -> int:
    """Return the number of positions in `runs`."""
    return sum(run.length for run in runs)


def _unpacked(message: Tensor, runs: Sequence[Run], dim: int) -> Sequence[Tensor]:
    """Cut a received message into its runs."""
    return torch.split(message, [run.length for run in runs], dim)
