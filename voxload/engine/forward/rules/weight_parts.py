"""Parts of weights: what a rank computes with of a weight that is cut.

Where every rank has all of a weight, it takes its part. Where each rank has a part alone (a DTensor), the gradient
of it comes as the mean over the world, as DDP and FSDP leave those of other weights, which do not know of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from voxload.engine.forward.sharding import Sharding
from voxload.engine.run.autograd_functions import applied
from voxload.errors import UsageError


def own_part(weight: Tensor, cut: Sharding, coords: Sequence[int]) -> Tensor:
    """Return the part of a weight that the rank at `coords` of its sample group computes with.

    Raises UsageError in a graph of torch's compiler where ranks have parts alone.
    """
    if not is_apart(weight):
        part: Tensor = cut.block(weight, coords)
        return part
    if torch.compiler.is_compiling():
        raise UsageError(
            "torch.compile of a split network",
            found="weights of which each rank has a part alone",
            remedy="leave shard_weights away",
        )
    held: Any = weight
    own: Tensor = held.to_local()
    if tuple(own.shape) != cut.block_shape(coords):
        raise UsageError(
            f"weight of shape {tuple(weight.shape)}",
            found=f"a part of shape {tuple(own.shape)}, placed as {held.placements}",
            expected=f"one of {cut.block_shape(coords)}",
            remedy="split the network again: it was split by another plan",
        )
    mean: Tensor = applied(_MeanOfGradients, own, held.device_mesh.get_group(0))
    return mean


def is_apart(weight: Tensor) -> bool:
    """Tell whether each rank has a part of a weight alone; DTensor is not imported for that."""
    return hasattr(weight, "placements") and hasattr(weight, "device_mesh")


class _MeanOfGradients(torch.autograd.Function):
    """Nothing; backward, the sum over the ranks that have the same part, divided by the ranks of the world.

    Each rank's gradient is that of the sum of all ranks' losses by its own use of the part.
    """

    @staticmethod
    def forward(x: Tensor, group: dist.ProcessGroup) -> Tensor:  # noqa: ARG004 - torch's signature
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004 - torch's signature
        ctx.group = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # create_graph: DTensor and the sum would drop out of the derivative in silence
            raise UsageError(
                "a second derivative of a split network",
                found="weights of which each rank has a part alone, and gradients of them that are differentiated",
                expected="gradients of other tensors",
                remedy="leave shard_weights away",
            )
        total = grads[0].contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total / dist.get_world_size(), None
