"""all_sum: the sum of a small tensor over ranks, whose derivative is the sum of the gradients over the same ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from voxload.engine.compiling import keep_order
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.exchange.registry import exchange_at


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
def _(x: Tensor, world: bool, exchange: int) -> Tensor:  # noqa: ARG001 - the operator's own signature
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001 - torch's signature
    ctx.world, ctx.exchange = inputs[1:]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return _all_sum(grad, ctx.world, ctx.exchange), None, None


_all_sum.register_autograd(_backward, setup_context=_keep)
keep_order("voxload::all_sum")
