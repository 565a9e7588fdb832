"""Arguments of a DataLoader over a VolumeDataset: which are turned into others, and which are refused."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import torch
from torch.utils.data import ConcatDataset, DistributedSampler, RandomSampler, Subset

from voxload.data.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.loader.cache import Cache
from voxload.loader.collation import is_torchs
from voxload.loader.sampler import GroupSampler
from voxload.transforms import Transform


def is_read_by_threads(data: Any) -> TypeGuard[VolumeDataset]:
    """Tell whether items are the blocks that threads read: those of a VolumeDataset whose class gives no others."""
    kind = type(data)
    is_plain = getattr(kind, "__getitem__", None) is VolumeDataset.__getitem__ and not hasattr(kind, "__getitems__")
    return isinstance(data, VolumeDataset) and is_plain


def group_sampler(
    data: VolumeDataset, generator: torch.Generator | None, *, shuffle: bool, drop_last: bool
) -> GroupSampler | None:
    """Return a sampler over sample groups in place of torch's default, which every rank would draw for itself.

    None where there is one rank. Where the ranks are not looked up yet, the sampler does so when it is first used.
    """
    if data.is_grid_known and data.grid.world_size == 1:
        return None
    seed = generator.initial_seed() if generator is not None else 0
    return GroupSampler(
        data, data.grid if data.is_grid_known else None, shuffle=shuffle, seed=seed, drop_last=drop_last
    )


def check_arguments(loader: torch.utils.data.DataLoader[Any], added: Mapping[str, Any]) -> None:
    """Refuse arguments that contradict each other; `added` are those that torch's loader does not have."""
    data, cache = loader.dataset, added.get("cache")
    if cache is not None and not isinstance(cache, Cache):
        raise UsageError("cache", found=repr(cache), expected='a Cache, such as voxload.Cache(memory="8GiB")')
    if isinstance(data, VolumeDataset) and data.is_grid_known:
        _check_sampler(data, loader.sampler)
    if isinstance(data, VolumeDataset) and data.following is not None and not is_read_by_threads(data):
        raise UsageError(
            "follow",
            found=f"a {type(data).__name__} with items of its own, which worker processes have copies of",
            remedy="give VolumeDataset a transform instead, or leave follow out",
        )
    if not is_read_by_threads(data):
        found = (
            "a VolumeDataset with items of its own" if isinstance(data, VolumeDataset) else "a data set of another kind"
        )
        for name, given in added.items():
            if given is not None:
                raise UsageError(name, found=found, remedy="use it on a VolumeDataset")
        return
    if added["transform"] is not None and not is_torchs(loader.collate_fn):
        raise UsageError("transform", found="a collate_fn of your own", remedy="call the transform inside it")
    _check_items(data, added)


def _check_items(data: VolumeDataset, added: Mapping[str, Any]) -> None:
    """Refuse what cannot be done to items that the data set itself augments or transforms."""
    for name in ("transform", "device"):
        if data.item_transform is not None and added.get(name) is not None:
            raise UsageError(
                name,
                found="a data set with a transform of its own, which makes anything of its items on the host",
                remedy="transform on one of both sides, and copy such batches to a device in the loop",
            )


def parse_readers(readers: Any, cache: object | None) -> bool:
    """Tell whether a process of its own reads."""
    if readers not in ("threads", "process"):
        raise UsageError("readers", found=repr(readers), expected='"threads" or "process"')
    if readers == "process" and cache is not None:
        raise UsageError(
            "readers",
            found='"process" with a cache, whose blocks are kept by this process',
            remedy="leave out one of both",
        )
    return bool(readers == "process")


def parse_clairvoyant(clairvoyant: Any, cache: Cache | None) -> bool:
    """Tell whether orders beyond the epoch at hand are used."""
    if not isinstance(clairvoyant, bool):
        raise UsageError("clairvoyant", found=repr(clairvoyant), expected="True or False")
    if not clairvoyant and cache is not None and cache.clairvoyant:
        raise UsageError(
            "clairvoyant",
            found="False with a cache that uses orders beyond the epoch at hand",
            expected="the same for both",
            remedy="say Cache(clairvoyant=False) too",
        )
    return clairvoyant and (cache is None or cache.clairvoyant)


def check_epoch(loader: torch.utils.data.DataLoader[Any], data: VolumeDataset) -> None:
    """Refuse, when an epoch begins, what torch refuses then, in its words."""
    _check_sampler(data, loader.sampler)
    if loader.num_workers == 0 and loader.timeout != 0:
        raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
    if loader.num_workers > 0 and not loader.prefetch_factor:
        raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")


def check_parts(loader: torch.utils.data.DataLoader[Any]) -> None:
    """Refuse, when an epoch begins, to draw parts of a VolumeDataset so that ranks of a group get different samples.

    ``Subset`` and ``ConcatDataset`` are loaded as torch does it: no order over groups is put in torch's default's
    place, and no rank compares its batches with others'. What is known to be wrong is refused before it is trained on.
    """
    for data in _volumes_in(loader.dataset):
        _check_sampler(data, loader.sampler)
        sampler = loader.sampler
        if data.grid.group_size > 1 and isinstance(sampler, RandomSampler) and sampler.generator is None:
            raise UsageError(
                f"order of a {type(loader.dataset).__name__}",
                found="each rank's own random one",
                expected=f"one for all {data.grid.group_size} ranks of a sample group",
                remedy="pass torch's DistributedSampler with num_replicas=grid.groups, rank=grid.group",
            )


def _volumes_in(data: Any) -> Iterator[VolumeDataset]:
    """Yield the data sets of volumes that torch's wrappers are parts or chains of."""
    inner = getattr(data, "datasets", None) if isinstance(data, ConcatDataset) else [getattr(data, "dataset", None)]
    for one in inner or ():
        if isinstance(one, VolumeDataset):
            yield one
        elif isinstance(one, Subset | ConcatDataset):
            yield from _volumes_in(one)


def warn_of_processes(loader: torch.utils.data.DataLoader[Any]) -> None:
    """Warn of what a user expects of worker processes where none are started, and of threads where none read."""
    if not is_read_by_threads(loader.dataset):
        if isinstance(loader.dataset, VolumeDataset):
            warnings.warn(
                f"{type(loader.dataset).__name__} has items of its own: they are loaded as torch's loader does it, and "
                "nothing is read ahead by threads; give VolumeDataset a transform instead",
                stacklevel=3,
            )
        return
    if loader.worker_init_fn is not None and loader.num_workers > 0:
        warnings.warn(
            "worker_init_fn is not called: a VolumeDataset is read by threads of this process, not by worker processes",
            stacklevel=3,
        )


def _check_sampler(data: VolumeDataset, sampler: Any) -> None:
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
    # Compared with None: what others' transforms are as a truth value may be a length, or worse, a draw.
    named: Mapping[str, Transform] = {}
    if transform is not None:
        named = transform if isinstance(transform, Mapping) else {data.field_names[0]: transform}
    unknown = set(named) - set(data.field_names)
    if unknown:
        raise UsageError("transform", found=f"field {min(unknown)!r}", expected=f"one of {list(data.field_names)}")
    return tuple(named.get(name) for name in data.field_names)


def largest_batch(loader: torch.utils.data.DataLoader[Any]) -> int:
    """Return the most samples in a batch: what a slot must hold. 1 where a batch sampler does not say: others go apart.

    Raises UsageError where it does not say and blocks are cached, for room is planned for before batches are drawn.
    """
    if loader.batch_sampler is None:
        return 1
    size = getattr(loader.batch_sampler, "batch_size", None)
    if isinstance(size, int):
        return size
    if getattr(loader, "cache", None) is None:
        return 1
    raise UsageError(
        "batch_sampler",
        found=f"{type(loader.batch_sampler).__name__} without a batch_size",
        expected="to know the largest batch, so that the buffers of a cache fit it",
        remedy="give it an attribute batch_size",
    )
