"""Fused: a chain in one pass over the volumes, wherever they are.

Tables: what a chain makes of every value that there is, for types of at most 16 bits. A stored integer of 16 bits has
65,536 values, so a chain of any length is one look-up a voxel: its cost is that of reading the stored type and
writing the result. The table is made by the chain itself, so the results are its own, to the bit.

Compiled chains: one kernel of a chain, made by torch.compile for one shape. It is the device's way, tested on the CPU
too. Where torch.compile is switched off by its own switches (``TORCH_COMPILE_DISABLE=1``,
``torch.compiler.set_stance("force_eager")``) the chain runs step by step.

On the CPU, types of at most 16 bits go through tables, wider ones in slabs that stay in the caches from the first step
to the last; few voxels, which stay there anyway, step by step. On a device torch.compile makes one kernel of the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import torch

from voxload.errors import UsageError
from voxload.readers.team import team
from voxload.transforms.chain import Columns, Step, check_channels, columns_of, fresh_columns, result_dtype, run
from voxload.transforms.domain import check_result, first_look, is_bounded
from voxload.transforms.lookup import Bits, Lookup

T = TypeVar("T")

_ALONE = 2**20
"""Voxels that one thread does in about a millisecond: fewer are done before others have woken up."""


def parallel_for(work: Callable[[T], None], tasks: Sequence[T], voxels: int) -> None:
    """Do all tasks, by the calling thread and, of many voxels, by whoever is free; raises what a task raises."""
    if voxels < _ALONE:
        for task in tasks:
            work(task)
    else:
        team().run(work, tasks)


_TABLE_SLAB = 2**17
"""Voxels of all channels together that one thread does at a time: some 40 us, beside which a call costs little."""
_UNSIGNED: dict[int, torch.dtype] = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}


def has_table(volumes: torch.Tensor, steps: tuple[Step, ...]) -> bool:
    """Tell whether a table is to be used: it is smaller than what is looked up in it."""
    return volumes.itemsize <= 2 and volumes.numel() >= _entries(volumes.dtype) * _rows(volumes, steps)


def look_up(volumes: torch.Tensor, steps: tuple[Step, ...], out: torch.Tensor) -> None:
    """Write what a chain makes of volumes ``(B, C, voxels)`` into `out`, by all threads that read."""
    channels = volumes.shape[1]
    table = _table(steps, volumes.dtype, _rows(volumes, steps))
    found = Lookup(_bits(volumes), table, _bits(out))
    width, voxels = max(1, _TABLE_SLAB // channels), volumes.shape[2]
    tasks = [(item, first) for item in range(len(volumes)) for first in range(0, voxels, width)]
    is_checked = is_bounded(steps)

    def work(task: tuple[int, int]) -> None:
        item, first = task
        last = min(first + width, voxels)
        found.span(item, first, last)
        if is_checked:
            check_result(volumes[item : item + 1, :, first:last], steps, out[item, :, first:last])

    parallel_for(work, tasks, volumes.numel())


@lru_cache(maxsize=16)
def _table(steps: tuple[Step, ...], dtype: torch.dtype, rows: int) -> Bits:
    """Return the results' bits by channel and bits of the value."""
    entries = _entries(dtype)
    values = torch.arange(entries, dtype=torch.int32).to(_UNSIGNED[dtype.itemsize]).view(dtype)
    return _bits(run(values.expand(rows, entries), steps, columns_of(steps, torch.device("cpu"), 1)).contiguous())


def _entries(dtype: torch.dtype) -> int:
    return 1 << 8 * dtype.itemsize


def _rows(volumes: torch.Tensor, steps: tuple[Step, ...]) -> int:
    """Return how many tables there are: one for all channels, where they are treated alike."""
    return volumes.size(1) if any(step.columns for step in steps) else 1


def _bits(values: torch.Tensor) -> Bits:
    return values.view(_UNSIGNED[values.itemsize]).numpy()


_KEPT = 64
"""Kernels that are kept: a loader needs one for its batches and one for the last, smaller one."""
Chain = Callable[[torch.Tensor], torch.Tensor]


def compiled_chain(steps: tuple[Step, ...], volumes: torch.Tensor, *, channels_last: bool) -> Chain:
    """Return the kernel for volumes like these; compiled at its first call, which takes seconds."""
    return _chain(steps, (volumes.device, volumes.dtype, volumes.shape, volumes.stride()), channels_last)


@lru_cache(maxsize=_KEPT)
def _chain(
    steps: tuple[Step, ...], like: tuple[torch.device, torch.dtype, torch.Size, Any], channels_last: bool
) -> Chain:
    device, _, shape, _ = like
    columns = columns_of(steps, device, len(shape) - 2)

    def chain(volumes: torch.Tensor, *flat: torch.Tensor) -> torch.Tensor:
        left = iter(flat)
        values = run(volumes, steps, [tuple(next(left) for _ in step.columns) for step in steps])
        return values.contiguous(memory_format=torch.channels_last_3d) if channels_last else values

    # torch.compile counts recompilations by code object, and gives up beyond a few: each shape gets code of its own.
    own: Any = FunctionType(
        chain.__code__.replace(), chain.__globals__, chain.__name__, chain.__defaults__, chain.__closure__
    )
    kernel: Callable[..., torch.Tensor] = torch.compile(own, fullgraph=True, dynamic=False)
    flat = tuple(column for one in columns for column in one)
    return lambda volumes: kernel(volumes, *flat)


_SLAB = 2**18
"""Voxels of a slab: 1 MiB of float32. Of smaller ones, handing the interpreter's lock over at every step costs more
than the nearer cache gains: with an eighth of it a chain took two to three times as long."""
_FEW = 2**21
"""Voxels up to which each step may be a pass of its own: 8 MiB of float32 stay in the last cache, and in memory that
the process has already."""
_VOLUME_AXES = 5
"""Axes of a batch of volumes: (B, C, d, h, w)."""


def transform(
    volumes: torch.Tensor, steps: tuple[Step, ...], *, channels_last: bool, is_compiled: bool
) -> torch.Tensor:
    """Return what a chain makes of volumes ``(B, C, ...)``, as a new tensor on the same device.

    Parameters
    ----------
    volumes
        They stay as they are.
    steps
        What is done to every voxel.
    channels_last
        Whether the result's memory format is ``channels_last_3d``; else it is that of the volumes.
    is_compiled
        Whether a device runs the chain as one compiled kernel; else step by step.

    Raises
    ------
    UsageError
        When the channels are not those that a step has numbers for, or a memory format needs other axes.
    DataError
        A number that a step has no result for; see `check_result`.
    """
    if channels_last and volumes.ndim != _VOLUME_AXES:
        raise UsageError("ChannelsLast", found=f"{volumes.ndim} axes", expected="(B, C, d, h, w)")
    check_channels(volumes, steps)
    is_traced = torch.compiler.is_compiling() or (volumes.requires_grad and torch.is_grad_enabled())
    if not steps or is_traced:
        return _stepwise(volumes, steps, channels_last)
    if volumes.device.type == "cpu":
        return _on_cpu(volumes.detach(), steps, channels_last)
    if is_compiled:
        found = compiled_chain(steps, volumes, channels_last=channels_last)(volumes)
    else:
        found = _stepwise(volumes, steps, channels_last)
    look = first_look(steps, volumes.device, volumes.dtype, volumes.shape)
    if look.is_due and is_bounded(steps):
        check_result(volumes, steps, found)
    look.is_due = False
    return found


def _stepwise(volumes: torch.Tensor, steps: tuple[Step, ...], channels_last: bool) -> torch.Tensor:
    """Return the chain's result, each step a pass of its own."""
    make = fresh_columns if torch.compiler.is_compiling() else columns_of  # caches cannot be traced
    columns = make(steps, volumes.device, max(0, volumes.ndim - 2))
    values = run(volumes, steps, columns)
    return values.contiguous(memory_format=torch.channels_last_3d) if channels_last else values


def _on_cpu(volumes: torch.Tensor, steps: tuple[Step, ...], channels_last: bool) -> torch.Tensor:
    is_last = volumes.ndim == _VOLUME_AXES and volumes.is_contiguous(memory_format=torch.channels_last_3d)
    channels_last = channels_last or (is_last and not volumes.is_contiguous())
    if not (is_last or volumes.is_contiguous()):
        volumes = volumes.contiguous()
    is_by_table = volumes.numel() > 0 and has_table(volumes, steps)
    if not volumes.numel() or (volumes.numel() <= _FEW and not is_by_table):
        with torch.no_grad():
            found = _stepwise(volumes, steps, channels_last)
            if is_bounded(steps):
                check_result(volumes, steps, found)
            return found
    out = _empty(volumes.shape, result_dtype(steps, volumes.dtype), channels_last)
    shape = (*volumes.shape[:2], -1) if volumes.ndim > 1 else (1, 1, -1)
    (look_up if is_by_table else _by_slabs)(volumes.view(shape), steps, out.view(shape))
    return out


def _empty(shape: torch.Size, dtype: torch.dtype, channels_last: bool) -> torch.Tensor:
    """Return memory for a result. It is numpy's, who asks for huge pages: small ones cost more than the whole chain."""
    count = shape.numel()
    flat = torch.from_numpy(np.empty(max(count, 1) * dtype.itemsize, np.uint8)).view(dtype)[:count]
    if not channels_last:
        return flat.view(shape)
    items, channels, *spatial = shape
    return flat.view(items, *spatial, channels).movedim(-1, 1)


def _by_slabs(values: torch.Tensor, steps: tuple[Step, ...], out: torch.Tensor) -> None:
    """Write what a chain makes of ``(B, C, voxels)``, one slab after the other; threads take slabs in turn."""
    columns = columns_of(steps, values.device, 1)
    by_channel = [_of_channel(columns, channel) for channel in range(values.shape[1])]
    tasks = [(item, first) for item in range(len(values)) for first in range(0, values.shape[2], _SLAB)]
    is_checked = is_bounded(steps)

    @torch.no_grad()  # here, for helpers have a switch of their own
    def work(task: tuple[int, int]) -> None:
        item, first = task
        for channel, own in enumerate(by_channel):
            found = run(values[item, channel, first : first + _SLAB], steps, own)
            out[item, channel, first : first + _SLAB].copy_(found)
        if is_checked:
            part = slice(first, first + _SLAB)
            check_result(values[item : item + 1, :, part], steps, out[item, :, part])

    parallel_for(work, tasks, values.numel())


def _of_channel(columns: tuple[Columns, ...], channel: int) -> list[Columns]:
    """Return one channel's numbers."""
    return [tuple(column[channel] for column in one) for one in columns]
