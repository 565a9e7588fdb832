"""Statistics: means and variances over a volume that is split, and a normalisation with them.

They are taken in two steps (the mean first, then squares of differences from it), each one small sum over ranks: the
difference of two large sums would lose the variance of data far from zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.exchange.protocol import Exchange
from voxload.engine.run.autograd_functions import applied
from voxload.engine.run.collectives import all_sum

_VOLUME = (2, 3, 4)
"""Spatial dimensions of (B, C, d, h, w)."""
_REDUCED = (torch.float16, torch.bfloat16)
"""Types whose sums are taken in single precision, as torch's own kernels do."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Which rows (sample, channel) of a volume share their statistics, and with which ranks."""

    groups: int
    """Groups of neighbouring channels; 0 where samples share them, channel by channel."""
    count: float | Tensor
    """Values that one mean is taken over, on all ranks."""
    exchange: Exchange
    """Carries the sums."""
    world: bool = False
    """Whether the samples of all sample groups share them."""
    channels: tuple[int, int, int] | None = None
    """Where ranks have channels of their own: this rank's first one, how many it has, and how many there are."""

    def mean(self, rows: Tensor) -> Tensor:
        """Return, of sums ``(..., B, C)``, the means over what shares them: ``(..., 1, C)`` or ``(..., B, groups)``.

        C is then the number of all channels, whoever has them.
        """
        if self.channels is not None:
            first, own, count = self.channels
            rows = functional.pad(rows, (first, count - first - own))
        local = rows.view(*rows.shape[:-1], self.groups, -1).sum(-1) if self.groups else rows.sum(-2, keepdim=True)
        return all_sum(local, self.exchange, world=self.world) / self.count

    def spread(self, shared: Tensor, channels: int) -> Tensor:
        """Return what `mean` gave for every row, as ``(B or 1, channels, 1, 1, 1)``."""
        every = channels if self.channels is None else self.channels[2]
        rows = shared.repeat_interleave(every // self.groups, -1) if self.groups else shared
        if self.channels is not None:
            rows = rows.narrow(-1, *self.channels[:2])
        return rows[..., None, None, None]


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """What becomes of normalised values: ``weight * value + bias`` by channel, and what keeps the root away from 0."""

    weight: Tensor | None
    bias: Tensor | None
    eps: float


def normalised(x: Tensor, pool: Pool, scaling: Scaling) -> tuple[Tensor, Tensor, Tensor]:
    """Return `x` with mean 0 and variance 1 over what `pool` says, then scaled; and the means and variances.

    Differentiable any number of times. Keeps only `x` for the backward pass.

    Parameters
    ----------
    x
        This rank's block, (B, C, d, h, w); it may be empty.
    pool
        Who shares statistics.
    scaling
        What is done with the normalised values.
    """
    # A compiler decides by itself what to keep and what to compute again; a joint graph must have every operation.
    if torch.compiler.is_compiling() or pool.exchange.carries_graph:
        return _composed(x, scaling.weight, scaling.bias, pool, scaling.eps)
    result: tuple[Tensor, Tensor, Tensor] = applied(_Normalise, x, scaling.weight, scaling.bias, pool, scaling.eps)
    return result


def rescaled(x: Tensor, mean: Tensor, variance: Tensor, scaling: Scaling) -> Tensor:
    """Return `x` normalised with given means and variances by channel, as in evaluation."""
    scale = (variance + scaling.eps).rsqrt()
    if scaling.weight is not None:
        scale = scale * scaling.weight
    offset = -mean * scale
    if scaling.bias is not None:
        offset = offset + scaling.bias
    return torch.addcmul(_by_channel(offset), x, _by_channel(scale)).to(x.dtype)


def wide_type(x: Tensor) -> torch.dtype:
    """Return the type in which sums over `x` are taken."""
    return torch.float32 if x.dtype in _REDUCED else x.dtype


def _composed(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, pool: Pool, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise by operations that autograd knows."""
    channels, wide = x.shape[1], x.to(wide_type(x))
    mean = pool.mean(wide.sum(_VOLUME))
    centred = wide - pool.spread(mean, channels)
    variance = pool.mean(centred.square().sum(_VOLUME))
    y = centred * pool.spread((variance + eps).rsqrt(), channels)
    if weight is not None:
        y = y * _by_channel(weight)
    if bias is not None:
        y = y + _by_channel(bias)
    return y.to(x.dtype), mean.detach(), variance.detach()


class _Normalise(torch.autograd.Function):
    """The same with a derivative by hand, after Ioffe and Szegedy (2015), that needs the input alone."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, pool: Pool, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        channels = x.shape[1]
        mean = pool.mean(x.sum(_VOLUME, dtype=wide_type(x)))
        shift = pool.spread(mean, channels)
        variance = pool.mean((x - shift).square_().sum(_VOLUME))
        scale = pool.spread((variance + eps).rsqrt(), channels)
        if weight is not None:
            scale = scale * _by_channel(weight)
        offset = -shift * scale
        if bias is not None:
            offset = offset + _by_channel(bias)
        ctx.save_for_backward(x, weight, bias, mean, variance)
        ctx.pool, ctx.eps = pool, eps
        ctx.mark_non_differentiable(mean, variance)
        return torch.addcmul(offset, x, scale).to(x.dtype), mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return (*_twice(grads[0], ctx.saved_tensors[:3], ctx), None, None)
        return (*_once(grads[0], ctx), None, None)


def _once(grad: Tensor, ctx: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of input, weight and bias."""
    x, weight, bias, mean, variance = ctx.saved_tensors
    pool, channels, dtype = ctx.pool, x.shape[1], wide_type(x)
    inverse, shift = pool.spread((variance + ctx.eps).rsqrt(), channels), pool.spread(mean, channels)
    total = grad.sum(_VOLUME, dtype=dtype)
    product = (x - shift).mul_(grad).sum(_VOLUME) * inverse[..., 0, 0, 0]
    gain = torch.ones((), dtype=dtype, device=x.device) if weight is None else weight.to(dtype)
    of_grad, of_product = pool.mean(torch.stack((total * gain, product * gain)))
    slope = -inverse.square() * pool.spread(of_product, channels)
    offset = -inverse * pool.spread(of_grad, channels) - slope * shift
    into_x = torch.addcmul(offset, x, slope).addcmul_(grad, inverse * _by_channel(gain.expand(channels)))
    into_weight = None if weight is None else product.sum(0).to(weight.dtype)
    into_bias = None if bias is None else total.sum(0).to(bias.dtype)
    return into_x.to(x.dtype), into_weight, into_bias


def _twice(grad: Tensor, inputs: tuple[Tensor | None, ...], ctx: Any) -> tuple[Tensor | None, ...]:
    """Return the same gradients by operations that can be differentiated again."""
    wanted = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
    with torch.enable_grad():
        x, weight, bias = inputs
        if x is None or not wanted:
            return None, None, None
        y = _composed(x, weight, bias, ctx.pool, ctx.eps)[0]
        found = iter(torch.autograd.grad(y, wanted, grad, create_graph=True))
    return tuple(next(found) if tensor is not None and tensor.requires_grad else None for tensor in inputs)


def _by_channel(values: Tensor) -> Tensor:
    """Return one value per channel so that it meets (B, C, d, h, w)."""
    return values[:, None, None, None]
