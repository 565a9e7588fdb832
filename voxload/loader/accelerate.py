"""prepare: Hugging Face Accelerate's preparation of a loader, with blocks still read by voxload."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard, get_sampler
from torch.utils.data import DistributedSampler

from voxload.data.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.loader.dataloader import DataLoader

_BATCHES = {"dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}
"""Arguments that a batch sampler stands for."""


def prepare(accelerator: Accelerator, loader: torch.utils.data.DataLoader[Any]) -> torch.utils.data.DataLoader[Any]:
    """Return what ``accelerator.prepare(loader)`` returns for torch's loader, over a voxload loader.

    Accelerate makes loaders anew as torch's own. Over a VolumeDataset that would lose the threads that read ahead, the
    cache and the transforms, and deal samples to single ranks where a group of them shares each; so
    ``accelerator.prepare`` refuses such a loader. Here the prepared loader iterates over a `DataLoader` of the same
    arguments, of which ``stats()`` and ``close()`` are reached through it, and batches are dealt

    * to all processes, by Accelerate's rules, where the data set knows no ranks: they are those of torch's loader;
    * to sample groups by the same rules, where it has a grid and the loader a sampler that draws for all groups;
    * by the loader's own sampler, where that is a DistributedSampler over groups, as without a sampler of the caller's.

    Any other loader is given to ``accelerator.prepare``.

    Parameters
    ----------
    accelerator
        Made before the loader's first use; batches are put on its device as it was told.
    loader
        The loader to prepare; not to be used itself afterwards.

    Raises
    ------
    UsageError
        For ``dispatch_batches`` (one process would read for all), ``batch_size=None``, a grid of other ranks than
        Accelerate's, or ``split_batches`` with a sampler that deals to groups already.
    """
    data = loader.dataset
    if not isinstance(loader, DataLoader) or not isinstance(data, VolumeDataset):
        prepared: torch.utils.data.DataLoader[Any] = accelerator.prepare(loader)
        return prepared
    _check(accelerator, loader, data.grid)
    shard = accelerator.prepare_data_loader(_torchs(loader))
    batches = shard.batch_sampler
    if data.grid.world_size > 1:
        batches = _over_groups(batches, data.grid, is_dealt=_is_dealt(loader))
    if data.grid.group_size > 1 or (data.grid.world_size > 1 and _is_dealt(loader)):
        # Accelerate counts samples as if each rank had its own: gather_for_metrics would cut off some that are.
        shard._drop_last = True  # noqa: SLF001 - of no other use there
    # Accelerate asks for a batch before it hands the one before it out, so that stays valid for one more.
    arguments = _arguments(loader, type(loader)) | {"keep": loader.keep + 1}
    shard.base_dataloader = type(loader)(data, batch_sampler=batches, **arguments)
    shard.dl_state_dict = shard.base_dataloader.state_dict()
    shard.load_state_dict = partial(_load_state, shard)
    shard._is_accelerate_prepared = True  # noqa: SLF001 - as Accelerator.prepare marks it: a second call changes nothing
    return shard  # type: ignore[no-any-return] # Accelerate has no types


def _load_state(shard: Any, state: Mapping[str, Any]) -> None:
    """Load a loader's state, less what Accelerate adds, and let Accelerate count epochs on from there."""
    shard.base_dataloader.load_state_dict(
        {name: value for name, value in state.items() if name != "_iterator_finished"}
    )
    shard.iteration = state["epoch"]


def _check(accelerator: Accelerator, loader: DataLoader, grid: ProcessGrid) -> None:
    if accelerator.dispatch_batches:
        raise UsageError(
            "dispatch_batches",
            found="True",
            expected="each process to read its own blocks",
            remedy="leave it out of the Accelerator's DataLoaderConfiguration",
        )
    if loader.batch_sampler is None:
        raise UsageError("batch_size", found="None", expected="batches that Accelerate can deal to processes")
    if grid.world_size not in (1, accelerator.num_processes):
        raise UsageError(
            "grid of the VolumeDataset",
            found=f"{grid.world_size} ranks",
            expected=f"Accelerate's {accelerator.num_processes} processes",
            remedy="give the data set grid=ProcessGrid.from_env(spatial)",
        )
    if accelerator.split_batches and grid.world_size > 1 and _is_dealt(loader):
        raise UsageError(
            "split_batches",
            found="a sampler that deals samples to groups already",
            expected="batches of all groups to split",
            remedy="leave split_batches out, or pass a sampler that draws for all groups",
        )


def _is_dealt(loader: DataLoader) -> bool:
    return isinstance(get_sampler(loader), DistributedSampler)


def _torchs(loader: DataLoader) -> torch.utils.data.DataLoader[Any]:
    """Return torch's own loader with the same batches: what Accelerate knows how to prepare."""
    if loader.batch_size is None:
        given: dict[str, Any] = {"batch_sampler": loader.batch_sampler}
    else:
        given = {"batch_size": loader.batch_size, "sampler": loader.sampler, "drop_last": loader.drop_last}
    kind = torch.utils.data.DataLoader
    return kind(loader.dataset, **given, **_arguments(loader, kind))


def _arguments(loader: DataLoader, kind: type[torch.utils.data.DataLoader[Any]]) -> dict[str, Any]:
    """Return what `kind` takes besides the batches; each argument is an attribute of its name."""
    taken = dict(inspect.signature(kind).parameters)
    if issubclass(kind, DataLoader):  # a class of the caller's may pass on what it does not name
        taken |= inspect.signature(DataLoader).parameters
    named = [name for name, one in taken.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return {name: getattr(loader, name) for name in named if name not in _BATCHES}


def _over_groups(batches: Any, grid: ProcessGrid, *, is_dealt: bool) -> Any:
    """Return the batch sampler, dealing to sample groups what Accelerate dealt to single ranks."""
    if not isinstance(batches, BatchSamplerShard):
        return batches
    if is_dealt or grid.groups == 1:
        return batches.batch_sampler
    batches.num_processes, batches.process_index = grid.groups, grid.group
    return batches
