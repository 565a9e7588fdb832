"""BatchNorm, InstanceNorm and GroupNorm in split form."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.layer_plan import LayerPlan, Tile
from voxload.engine.layers.form import PassContext, with_forward
from voxload.engine.run.collectives import all_sum
from voxload.engine.run.statistics import Pool, Scaling, normalised, rescaled
from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Normalisation:
    """The split form of a layer that normalises with statistics of the whole volume; blocks stay where they are."""

    kind: str
    """Name of the layer's class."""

    def plan(self, blocks: Blocks, wanted: Blocks | None, *, min_width: int) -> LayerPlan:  # noqa: ARG002 - see Form
        """Return a plan that leaves every block where it is."""
        return LayerPlan(blocks, blocks)

    def run(self, layer: nn.Module, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Return this rank's block, normalised; see Form."""
        y: Tensor = layer(x, tile, context)
        return y


def split_batch_norm(layer: nn.Module, _split: tuple[bool, ...]) -> tuple[Normalisation, nn.Module]:
    """Return the form of BatchNorm3d, where a group's samples share statistics, or SyncBatchNorm, where all do."""
    if not isinstance(layer, nn.SyncBatchNorm):
        return Normalisation("BatchNorm3d"), with_forward(layer, _batch_norm)
    twin = with_forward(layer, _sync_batch_norm)
    # DDP and torch's own layer refuse SyncBatchNorm on the host by its class; this form runs anywhere.
    twin.__class__ = nn.BatchNorm3d
    return Normalisation("SyncBatchNorm"), twin


def split_instance_norm(layer: nn.Module, _split: tuple[bool, ...]) -> tuple[Normalisation, nn.Module]:
    """Return the form of InstanceNorm3d."""
    return Normalisation("InstanceNorm3d"), with_forward(layer, _instance_norm)


def split_group_norm(layer: nn.Module, _split: tuple[bool, ...]) -> tuple[Normalisation, nn.Module]:
    """Return the form of GroupNorm."""
    return Normalisation("GroupNorm"), with_forward(layer, _group_norm)


def _batch_norm(layer: Any, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
    """Do what ``nn.BatchNorm3d.forward`` does, running statistics included."""
    return _over_batch(layer, x, Pool(0, x.shape[0] * prod(tile.shape), context.exchange))


def _sync_batch_norm(layer: Any, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
    """Do what ``nn.SyncBatchNorm.forward`` does, on any device."""
    own = torch.full((), float(x.shape[0]), dtype=torch.float64, device=x.device)
    blocks = all_sum(torch.ones_like(own), context.exchange)
    # Every rank of a group has the group's samples, so the sum over the world counts them once per block.
    samples = all_sum(own, context.exchange, world=True) / blocks
    return _over_batch(layer, x, Pool(0, samples * prod(tile.shape), context.exchange, world=True))


def _over_batch(layer: Any, x: Tensor, pool: Pool) -> Tensor:
    """Normalise by channel over all samples of the pool, or with running statistics where torch does."""
    _require_channels(layer, x, layer.num_features)
    scaling = Scaling(layer.weight, layer.bias, layer.eps)
    if not layer.training and layer.running_mean is not None:
        return rescaled(x, layer.running_mean, layer.running_var, scaling)
    _require_several(layer, pool.count)
    y, mean, variance = normalised(x, pool, scaling)
    if layer.training and layer.running_mean is not None:
        _follow(layer, mean[0], variance[0], pool.count)
    return y


def _instance_norm(layer: Any, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
    """Do what ``nn.InstanceNorm3d.forward`` does."""
    _require_channels(layer, x, layer.num_features if layer.affine or layer.track_running_stats else x.shape[1])
    scaling = Scaling(layer.weight, layer.bias, layer.eps)
    if not layer.training and layer.track_running_stats:
        return rescaled(x, layer.running_mean, layer.running_var, scaling)
    pool = Pool(x.shape[1], prod(tile.shape), context.exchange)
    _require_several(layer, pool.count)
    y, mean, variance = normalised(x, pool, scaling)
    if layer.training and layer.track_running_stats:
        _follow(layer, mean.mean(0), variance.mean(0), pool.count)
    return y


def _group_norm(layer: nn.GroupNorm, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
    """Do what ``nn.GroupNorm.forward`` does."""
    _require_channels(layer, x, layer.num_channels)
    count = prod(tile.shape) * x.shape[1] // layer.num_groups
    return normalised(x, Pool(layer.num_groups, count, context.exchange), Scaling(layer.weight, layer.bias, layer.eps))[
        0
    ]


def _follow(layer: Any, mean: Tensor, variance: Tensor, count: float | Tensor) -> None:
    """Move the running statistics towards those of this pass."""
    if _is_recomputing():
        return
    momentum = layer.momentum
    if layer.num_batches_tracked is not None and not isinstance(layer, nn.InstanceNorm3d):
        layer.num_batches_tracked.add_(1)
        if momentum is None:
            momentum = 1.0 / layer.num_batches_tracked.double()
    unbiased = variance * (count / (count - 1))
    for running, now in ((layer.running_mean, mean), (layer.running_var, unbiased)):
        running.copy_((1 - momentum) * running + momentum * now.to(running.dtype))


def _is_recomputing() -> bool:
    """Tell whether this runs inside a backward pass: activation checkpointing repeats a pass that was counted."""
    if torch.compiler.is_compiling():
        return False
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - torch has no public way to ask


def _require_channels(layer: nn.Module, x: Tensor, channels: int) -> None:
    """Raise UsageError where torch's own layer would refuse the number of channels."""
    if x.shape[1] != channels:
        raise UsageError(
            type(layer).__name__, found=f"a volume of {x.shape[1]} channels", expected=f"{channels} channels"
        )


def _require_several(layer: nn.Module, count: float | Tensor) -> None:
    """Raise UsageError where there is a single value, which has no variance; torch refuses it too."""
    if isinstance(count, int | float) and count <= 1:
        raise UsageError(f"{type(layer).__name__} in training", found="one value per channel", expected="two or more")
