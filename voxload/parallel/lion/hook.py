"""The communication hook that keeps DistributedDataParallel's sums inside sample groups."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from voxload.errors import UsageError
from voxload.parallel.lion.wire import Wire


def average_in_groups(model: DistributedDataParallel, wire: Wire) -> None:
    """Let a model average gradients over the ranks of the sample group, in full precision, and over no others.

    Raises
    ------
    UsageError
        When its process group is not the world: weights of all ranks have to begin alike.
    """
    if dist.get_world_size(model.process_group) != dist.get_world_size():
        raise UsageError(
            "Lion.attach",
            found=f"a model of {dist.get_world_size(model.process_group)} ranks",
            expected=f"one of all {dist.get_world_size()}",
            remedy="leave process_group out of DistributedDataParallel: gradients are averaged in groups by this",
        )

    def averaged(_: Any, bucket: Any) -> Future[Tensor]:
        flat = bucket.buffer()
        coming = wire.added_in_group(flat.div_(wire.places))
        if coming.work is None:
            done: Future[Tensor] = Future()
            done.set_result(flat)
            return done
        return coming.work.get_future().then(_first)  # type: ignore[no-any-return] # torch leaves it untyped

    averaged.__annotations__.clear()  # torch compares them with classes, and here they are texts
    model.register_comm_hook(None, averaged)


def _first(future: Future[Any]) -> Tensor:
    found = future.value()
    return found[0] if not isinstance(found, torch.Tensor) else found
