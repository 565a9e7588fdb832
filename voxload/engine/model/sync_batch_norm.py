"""SyncBatchNorm in a network whose own forward runs on blocks, on any device.

Torch's own layer asks for GPUs, and for the whole samples of a rank. DDP refuses it on the host by its class.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import handle_torch_function, has_torch_function_unary

from voxload.errors import UsageError


def batch_norm_of_world(  # noqa: PLR0913, PLR0917 - those of torch.nn.functional.batch_norm
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return what ``torch.nn.functional.batch_norm`` gives with statistics of the samples of the whole world."""
    given = running_mean, running_var, weight, bias, training, momentum, eps
    if has_torch_function_unary(x):
        return handle_torch_function(batch_norm_of_world, (x,), x, *given)
    return functional.batch_norm(x, *given)


class WorldBatchNorm(nn.BatchNorm3d):
    """What an nn.SyncBatchNorm becomes, in place, when its network is split."""

    process_group: Any

    def forward(self, x: Tensor) -> Tensor:
        """Do what ``nn.SyncBatchNorm.forward`` does; see there. Raises UsageError for what every rank has whole."""
        if not has_torch_function_unary(x) and not x.is_meta and self.training:
            raise whole_refused()
        momentum = 0.0 if self.momentum is None else self.momentum
        is_repeated = torch._C._current_graph_task_id() != -1  # noqa: SLF001 - torch has no public way to ask
        if self.training and self.track_running_stats and self.num_batches_tracked is not None and not is_repeated:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        is_followed = not self.training or self.track_running_stats
        mean, variance = (self.running_mean, self.running_var) if is_followed else (None, None)
        uses_own = self.training or (self.running_mean is None and self.running_var is None)
        return batch_norm_of_world(x, mean, variance, self.weight, self.bias, uses_own, momentum, self.eps)


def whole_refused() -> UsageError:
    """Return the refusal of a batch norm of the world whose input every rank of a group has whole, in training."""
    return UsageError(
        "nn.SyncBatchNorm",
        found="a tensor that every rank of a group has whole, in training",
        expected="a volume that is cut",
        remedy="use nn.BatchNorm1d or a normalisation without a batch behind the last volume",
    )


def synced(model: nn.Module) -> None:
    """Let the layers of a model that are nn.SyncBatchNorm run on blocks; raises UsageError for those of some ranks."""
    for path, module in model.named_modules():
        if not isinstance(module, nn.SyncBatchNorm):
            continue
        if module.process_group is not None:
            raise UsageError(
                f"layer {path!r} (SyncBatchNorm)",
                found="a process_group of its own",
                expected="statistics over the whole world",
                remedy="convert without process_group",
            )
        module.__class__ = WorldBatchNorm  # type: ignore[assignment] # it has all that is asked for
