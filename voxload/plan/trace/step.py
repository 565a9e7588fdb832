"""trace_step: one training step of one rank, run by the engine itself on tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from voxload.engine import NoExchange, SplitPlan, shard
from voxload.engine.shard import MIN_WIDTH, Sharded, shard_on_shapes
from voxload.grid import ProcessGrid
from voxload.plan.checkpoints import checkpoint_modules
from voxload.plan.trace.autocast import AutocastOnMeta
from voxload.plan.trace.operation import Phase, StepTrace
from voxload.plan.trace.tracer import Tracer
from voxload.plan.trace.volume import BATCH, VolumeTrace

Loss = Callable[[Any], Tensor]
"""Returns a scalar of what the network gives; its cost is that of a few operations on the network's own result."""
Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def trace_step(  # noqa: PLR0913 - each is a choice of who trains
    model: nn.Module,
    grid: ProcessGrid,
    shape: Sequence[int],
    *,
    channels: int,
    batch: int = 1,
    optimizer: Optimizer | None = None,
    plan: SplitPlan | None = None,
    recompute: Collection[str] = (),
    autocast: torch.dtype | None = None,
    min_width: int = MIN_WIDTH,
    loss: Loss | None = None,
) -> StepTrace:
    """Return what a training step takes on one rank; nothing is computed or sent.

    Parameters
    ----------
    model
        The network, on the meta device. It is left as it is, but for modules that are checkpointed.
    grid
        The grid, seen from the rank of interest.
    shape
        Extents (D, H, W) of the whole volume, in voxels.
    channels
        Of the volume.
    batch
        Samples of a sample group.
    optimizer
        Makes the optimiser of parameters; None for no update.
    plan, min_width
        As `voxload.engine.shard` takes them.
    recompute
        Paths of modules that run again in the backward pass, as `checkpoint_modules` takes them.
    autocast
        Type that `torch.autocast` would cast to; None for nothing.
    loss
        Of the network's result; by default the sum of squares of each of its tensors.

    Raises
    ------
    UsageError
        When the network or the shape cannot be split, as `voxload.engine.shard` would.
    """
    network = shard(model, grid, shape=shape, exchange=NoExchange(grid), plan=plan, min_width=min_width)
    if recompute:
        checkpoint_modules(network, recompute)
    x = torch.empty(batch, channels, *grid.block(tuple(shape)).shape, device="meta")
    network(x)  # what is looked at once, in a first pass with gradients
    return trace_network(model, network, x, optimizer=optimizer, autocast=autocast, loss=loss)


def trace_volume(
    model: nn.Module,
    shape: Sequence[int],
    *,
    channels: int,
    optimizer: Optimizer | None = None,
    autocast: torch.dtype | None = None,
    loss: Loss | None = None,
) -> VolumeTrace:
    """Return what a step takes of one rank that has whole volumes, from which steps on blocks follow in no time.

    Parameters and errors are those of `trace_step`.
    """
    alone = ProcessGrid((1, 1, 1), 1)
    network = shard_on_shapes(model, alone, shape)
    x = torch.empty(BATCH, channels, *shape, device="meta")
    if not isinstance(network, Sharded):
        network(x)  # as above; programs of traced networks are made before
    step = trace_network(model, network, x, optimizer=optimizer, autocast=autocast, loss=loss)
    return VolumeTrace(step, tuple(shape), channels)


def trace_network(
    model: nn.Module,
    network: nn.Module,
    x: Tensor,
    *,
    optimizer: Optimizer | None = None,
    autocast: torch.dtype | None = None,
    loss: Loss | None = None,
) -> StepTrace:
    """Return what a step takes of a network that is split already, or not at all, and has run once.

    Parameters
    ----------
    model, network
        The network on the meta device as it was, whose paths are told, and as it runs.
    x
        What it takes on this rank.
    optimizer, autocast, loss
        As `trace_step` takes them.
    """
    weights = [*network.parameters(), *network.buffers()]
    updates = None if optimizer is None else optimizer(list(network.parameters()))
    before = [(weight, weight.grad) for weight in network.parameters()]
    for weight in network.parameters():
        weight.grad = None
    tracer = Tracer(model, network)
    try:
        with tracer:
            with nullcontext() if autocast is None else AutocastOnMeta(autocast):
                total = (loss or squares)(network(x))
            total.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
            del total
            tracer.phase = Phase.UPDATE
            if updates is not None:
                updates.step()
        allocations = tracer.allocations()
    finally:
        tracer.close()
        for weight, grad in before:
            weight.grad = grad
    state = [] if updates is None else [each for each in tree_leaves(updates.state) if isinstance(each, Tensor)]
    return StepTrace(tuple(tracer.operations), allocations, tuple(tracer.gradients), _nbytes(weights), _nbytes(state))


def squares(result: Any) -> Tensor:
    """Return the sum of squares of all tensors that a network gives."""
    total: Tensor = sum(each.square().sum() for each in tree_leaves(result) if isinstance(each, Tensor))  # type: ignore[assignment] # there is one
    return total


def _nbytes(tensors: Sequence[Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)
