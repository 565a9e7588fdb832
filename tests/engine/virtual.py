"""A network on virtual ranks beside the same network in one process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine import Loopback, shard
from voxload.engine.comparison import differences
from voxload.engine.exchange.in_process import LoopbackRank
from voxload.engine.exchange.protocol import Exchange
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

    def split(twin: nn.Module, grid: ProcessGrid, exchange: Exchange) -> nn.Module:
        return shard(twin, grid, exchange=exchange, **{"shape": tuple(x.shape[2:])} | options)

    found = differences(model, x, spatial, split)
    assert found is not None
    return found.all


def second_derivative(model: nn.Module, x: Tensor, run: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
    """Return the gradient of the squared norm of the gradient of `run` by the input."""
    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(run(model, leaf), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), leaf)
    return second
