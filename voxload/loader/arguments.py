"""Arguments of a DataLoader over a VolumeDataset: which are turned into others, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from voxload.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.loader.sampler import GroupSampler
from voxload.transforms import Transform


def sample_over_groups(data: VolumeDataset, arguments: dict[str, Any]) -> None:
    """Put a sampler over sample groups in place of torch's default, which every rank would draw for itself."""
    if data.grid.world_size == 1 or arguments.get("sampler") is not None or arguments.get("batch_sampler") is not None:
        return
    generator = arguments.get("generator")
    arguments["sampler"] = GroupSampler(
        data,
        data.grid,
        shuffle=bool(arguments.pop("shuffle", False)),
        seed=generator.initial_seed() if generator is not None else 0,
        drop_last=bool(arguments.get("drop_last", False)),
    )


def check_sampler(data: VolumeDataset, sampler: Any) -> None:
    """Refuse torch's DistributedSampler over ranks where several ranks share a sample."""
    grid = data.grid
    if grid.group_size == 1 or not isinstance(sampler, DistributedSampler):
        return
    if (sampler.num_replicas, sampler.rank) != (grid.groups, grid.group):
        raise UsageError(
            "DistributedSampler",
            found=f"rank {sampler.rank} of {sampler.num_replicas}",
            expected=f"group {grid.group} of {grid.groups}: ranks of a sample group need the same samples",
            remedy="leave the sampler out, or pass num_replicas=grid.groups, rank=grid.group",
        )


def transforms_of(
    data: VolumeDataset, transform: Transform | Mapping[str, Transform] | None
) -> tuple[Transform | None, ...]:
    """Return each field's transform."""
    named = transform if isinstance(transform, Mapping) else {data.field_names[0]: transform} if transform else {}
    unknown = set(named) - set(data.field_names)
    if unknown:
        raise UsageError("transform", found=f"field {min(unknown)!r}", expected=f"one of {list(data.field_names)}")
    return tuple(named.get(name) for name in data.field_names)


def largest_batch(loader: torch.utils.data.DataLoader[Any]) -> int:
    """Return the most samples in a batch: what a slot must hold."""
    if loader.batch_sampler is None:
        return 1
    size = getattr(loader.batch_sampler, "batch_size", None)
    if not isinstance(size, int):
        raise UsageError(
            "batch_sampler",
            found=f"{type(loader.batch_sampler).__name__} without a batch_size",
            expected="to know the largest batch, so that the buffers fit it",
            remedy="give it an attribute batch_size",
        )
    return size
