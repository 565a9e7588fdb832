"""A network on virtual ranks beside the same network in one process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench.splitting.compare import error
from voxload.engine import Loopback, shard
from voxload.engine.exchange.loopback import LoopbackRank
from voxload.grid import ProcessGrid

Spatial = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Virtual ranks that hold one network."""

    loopback: Loopback
    """The ranks."""
    models: list[nn.Module]
    """The network of each rank, with parameters of its own."""
    networks: list[nn.Module]
    """The same, split."""

    @classmethod
    def of(cls, model: nn.Module, shape: Any, spatial: Spatial, **options: Any) -> World:
        """Split copies of `model` for a volume of `shape` over virtual ranks."""
        ranks = spatial[0] * spatial[1] * spatial[2]
        loopback = Loopback(ProcessGrid(spatial, ranks))
        models = [copy.deepcopy(model) for _ in range(ranks)]
        networks = [
            shard(twin, loopback.grid.at(rank), shape=shape, exchange=loopback.rank(rank), **options)
            for rank, twin in enumerate(models)
        ]
        return cls(loopback, models, networks)

    def block(self, rank: int, x: Tensor) -> Tensor:
        """Return a rank's block of a whole tensor (..., D, H, W)."""
        own: Any = (..., *self.loopback.grid.at(rank).block(x.shape[-3:]).slices)
        return x[own]

    def exchange(self, rank: int) -> LoopbackRank:
        """Return a rank's exchange."""
        return self.loopback.rank(rank)


def worst_error(model: nn.Module, x: Tensor, spatial: Spatial, **options: Any) -> dict[str, float]:
    """Return the worst relative errors of result, gradients and buffers of a split network; all in float64.

    The network's result may be cut, or whole on every rank.
    """
    plain, whole = copy.deepcopy(model), x.clone().requires_grad_()
    wanted = plain(whole)
    pull = torch.randn_like(wanted)
    (wanted * pull).sum().backward()
    world = World.of(model, tuple(x.shape[2:]), spatial, **options)
    ranks = len(world.models)
    is_cut = wanted.ndim == 5

    def work(rank: int) -> tuple[float, float]:
        block = world.block(rank, x).clone().requires_grad_()
        found = world.networks[rank](block)
        own = world.block(rank, wanted) if is_cut else wanted
        (found * (world.block(rank, pull) if is_cut else pull)).sum().backward()
        assert block.grad is not None
        assert whole.grad is not None
        share = block.grad if is_cut else block.grad / ranks
        return error(found.detach(), own.detach()), error(share, world.block(rank, whole.grad))

    results = world.loopback.run(work)
    errors = {"result": max(row[0] for row in results), "input": max(row[1] for row in results)}
    scale = max((float(w.grad.abs().max()) for w in plain.parameters() if w.grad is not None), default=1.0)
    for name, weight in plain.named_parameters():
        grads = [twin.get_parameter(name).grad for twin in world.models]
        total = torch.stack([grad for grad in grads if grad is not None]).sum(0) / (1 if is_cut else ranks)
        errors[name] = float((total - (0 if weight.grad is None else weight.grad)).abs().max()) / scale
    for name, buffer in plain.named_buffers():
        errors[name] = max(error(twin.get_buffer(name).double(), buffer.double()) for twin in world.models)
    return errors


def second_derivative(model: nn.Module, x: Tensor, run: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
    """Return the gradient of the squared norm of the gradient of `run` by the input."""
    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(run(model, leaf), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), leaf)
    return second
