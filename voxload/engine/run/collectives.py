"""Collectives: gathers along an axis of the grid, their exact adjoints and sums over ranks, as operators of torch.

The engine's one primitive: gather intervals along a grid axis, and its exact adjoint. Gather fetches for each rank
the positions that it needs; scatter-add carries values back to the owners of these positions and adds them up. The
two are transposes of each other for any plan, and each is the other's derivative, so gradients of any order are
exact. Both are operators of torch, so that compiled graphs can hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from voxload.engine.arithmetic.axis_plan import Part, Run, part_of
from voxload.engine.exchange.protocol import Exchange, exchange_at
from voxload.engine.run.autograd_functions import applied
from voxload.engine.run.tensors import empty_like_block, packed
from voxload.engine.run.torch_compile import keep_order


def gather(x: Tensor, part: Part, *, fill: float, exchange: Exchange) -> Tensor:
    """Return, for this rank, the positions of a split volume that `part` says it needs.

    Parameters
    ----------
    x
        This rank's block, any floating dtype.
    part
        What to fetch along which axis of the grid and dimension of `x`.
    fill
        Value of positions outside the volume; it is a constant to autograd.
    exchange
        Carries the messages; every rank of the line must call this with its own part of one plan.
    """
    if exchange.carries_graph:
        whole: Tensor = exchange.gathered(x, part, fill)  # type: ignore[attr-defined] # what such exchanges have
        return whole
    if _is_watched(x):
        result: Tensor = _gather(x, part.number, fill, exchange.key)
        return result
    gathered: Tensor = applied(_Gather, x, part, fill, exchange)
    return gathered


def scatter_add(x: Tensor, part: Part, *, exchange: Exchange) -> Tensor:
    """Return this rank's block of the sum of what all ranks gathered: the adjoint of `gather`."""
    if _is_watched(x):
        result: Tensor = _scatter_add(x, part.number, exchange.key)
        return result
    added: Tensor = applied(_ScatterAdd, x, part, exchange)
    return added


def _is_watched(x: Tensor) -> bool:
    """Tell whether somebody looks at operations who must see one operator: a compiler, a mode, a tensor without data.

    Else the same is done without it: torch takes as long to call an operator made in Python as the copies of a small
    block take.
    """
    return (
        torch.compiler.is_compiling()
        or type(x) not in _PLAIN
        or x.device.type == "meta"
        or torch._C._len_torch_dispatch_stack() > 0  # noqa: SLF001 - torch has no public way to ask
    )


_PLAIN = (Tensor, torch.nn.Parameter)


class _Gather(torch.autograd.Function):
    """The autograd node of `gather`, outside of graphs."""

    @staticmethod
    def forward(x: Tensor, part: Part, fill: float, exchange: Exchange) -> Tensor:
        return _collect(x, part, fill, exchange)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004 - torch's signature
        _, ctx.part, _, ctx.exchange = inputs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None, None]:
        return scatter_add(grads[0], ctx.part, exchange=ctx.exchange), None, None, None


class _ScatterAdd(torch.autograd.Function):
    """The autograd node of `scatter_add`, outside of graphs."""

    @staticmethod
    def forward(x: Tensor, part: Part, exchange: Exchange) -> Tensor:
        return _spread(x, part, exchange)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004 - torch's signature
        _, ctx.part, ctx.exchange = inputs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        return gather(grads[0], ctx.part, fill=0.0, exchange=ctx.exchange), None, None


@torch.library.custom_op("voxload::gather", mutates_args=())
def _gather(x: Tensor, part: int, fill: float, exchange: int) -> Tensor:
    """Carry out a gather; the copy of the own positions runs while the messages travel."""
    return _collect(x, part_of(part), fill, exchange_at(exchange))


@torch.library.custom_op("voxload::scatter_add", mutates_args=())
def _scatter_add(x: Tensor, part: int, exchange: int) -> Tensor:
    """Carry out a scatter-add."""
    return _spread(x, part_of(part), exchange_at(exchange))


@_gather.register_fake
def _(x: Tensor, part: int, fill: float, exchange: int) -> Tensor:  # noqa: ARG001 - the operator's own signature
    return empty_like_block(x, _resized(x, part_of(part), part_of(part).needed))


@_scatter_add.register_fake
def _(x: Tensor, part: int, exchange: int) -> Tensor:  # noqa: ARG001 - the operator's own signature
    return empty_like_block(x, _resized(x, part_of(part), part_of(part).owned))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001 - torch's signature
    """Remember what the derivative needs: the part and the exchange."""
    ctx.part, ctx.exchange = inputs[1], inputs[-1]


def _gather_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    return _scatter_add(grad, ctx.part, ctx.exchange), None, None, None


def _scatter_add_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return _gather(grad, ctx.part, 0.0, ctx.exchange), None, None


_gather.register_autograd(_gather_backward, setup_context=_keep)
_scatter_add.register_autograd(_scatter_add_backward, setup_context=_keep)
keep_order("voxload::gather")
keep_order("voxload::scatter_add")


def _collect(x: Tensor, part: Part, fill: float, exchange: Exchange) -> Tensor:
    """Carry out a gather; the copy of the own positions runs while the messages travel."""
    dim = part.dim
    outgoing = {
        peer: packed([x.narrow(dim, run.source, run.length) for run in runs], dim) for peer, runs in part.outgoing
    }
    incoming = {peer: x.new_empty(_resized(x, part, _total(runs))) for peer, runs in part.incoming}
    pending = exchange.start(part.axis, _sendable(outgoing), _sendable(incoming))
    result = empty_like_block(x, _resized(x, part, part.needed))
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
    dim = part.dim
    outgoing = {
        peer: packed([x.narrow(dim, run.target, run.length) for run in runs], dim) for peer, runs in part.incoming
    }
    incoming = {peer: x.new_empty(_resized(x, part, _total(runs))) for peer, runs in part.outgoing}
    pending = exchange.start(part.axis, _sendable(outgoing), _sendable(incoming))
    result = empty_like_block(x, _resized(x, part, part.owned))
    own = next((run for run in part.here if run.length == part.owned), None)
    if own is None:
        result.zero_()
    else:  # what halos need: the whole block, once, which need not be added to zeros
        result.copy_(x.narrow(dim, own.target, own.length))
    for run in part.here:
        if run is not own:
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


def _resized(x: Tensor, part: Part, extent: int) -> list[int]:
    """Return the shape of `x` with another extent along the part's dimension."""
    shape = list(x.shape)
    shape[part.dim] = extent
    return shape


def _total(runs: Sequence[Run]) -> int:
    """Return the number of positions in `runs`."""
    return sum(run.length for run in runs)


def _unpacked(message: Tensor, runs: Sequence[Run], dim: int) -> Sequence[Tensor]:
    """Cut a received message into its runs."""
    if len(runs) == 1:
        return (message,)
    return torch.split(message, [run.length for run in runs], dim)


def all_sum(x: Tensor, exchange: Exchange, *, world: bool = False) -> Tensor:
    """Return the sum of `x` over the ranks of the sample group, or of the world; equal on all of them.

    Differentiable any number of times; every rank must call it, and call backward if one does.

    Parameters
    ----------
    x
        Any shape, the same on every rank; a floating-point type.
    exchange
        Carries the messages.
    world
        Whether to sum over all ranks of the job.
    """
    if exchange.carries_graph:
        whole: Tensor = exchange.total(x, world=world)  # type: ignore[attr-defined] # what such exchanges have
        return whole
    result: Tensor = _all_sum(x, world, exchange.key)
    return result


@torch.library.custom_op("voxload::all_sum", mutates_args=())
def _all_sum(x: Tensor, world: bool, exchange: int) -> Tensor:
    """Carry out the sum on a copy."""
    result = x.clone(memory_format=torch.contiguous_format)
    exchange_at(exchange).reduce(result, world=world)
    return result


@_all_sum.register_fake
def _all_sum_fake(x: Tensor, world: bool, exchange: int) -> Tensor:  # noqa: ARG001 - the operator's own signature
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _keep_sum(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001 - torch's signature
    ctx.world, ctx.exchange = inputs[1:]


def _all_sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return _all_sum(grad, ctx.world, ctx.exchange), None, None


_all_sum.register_autograd(_all_sum_backward, setup_context=_keep_sum)
keep_order("voxload::all_sum")
