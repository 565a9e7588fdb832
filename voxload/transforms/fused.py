"""Fused: a chain in one pass over the volumes, wherever they are.

On the CPU, types of at most 16 bits go through tables, wider ones in slabs that stay in the caches from the first step
to the last; few voxels, which stay there anyway, step by step. On a device torch.compile makes one kernel of the chain.
"""

from __future__ import annotations

import numpy as np
import torch

from voxload.errors import UsageError
from voxload.transforms.chain import Columns, Step, check_channels, columns_of, fresh_columns, result_dtype, run
from voxload.transforms.compiled import compiled_chain
from voxload.transforms.tables import has_table, look_up
from voxload.transforms.threads import share_out

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
    """
    if channels_last and volumes.ndim != _VOLUME_AXES:
        raise UsageError("ChannelsLast", found=f"{volumes.ndim} axes", expected="(B, C, d, h, w)")
    check_channels(volumes, steps)
    is_traced = torch.compiler.is_compiling() or (volumes.requires_grad and torch.is_grad_enabled())
    if not steps or is_traced:
        return _stepwise(volumes, steps, channels_last)
    if volumes.device.type == "cpu":
        return _on_cpu(volumes.detach(), steps, channels_last)
    if not is_compiled:
        return _stepwise(volumes, steps, channels_last)
    return compiled_chain(steps, volumes, channels_last=channels_last)(volumes)


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
            return _stepwise(volumes, steps, channels_last)
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

    @torch.no_grad()  # here, for helpers have a switch of their own
    def work(task: tuple[int, int]) -> None:
        item, first = task
        for channel, own in enumerate(by_channel):
            out[item, channel, first : first + _SLAB].copy_(
                run(values[item, channel, first : first + _SLAB], steps, own)
            )

    share_out(work, tasks, values.numel())


def _of_channel(columns: tuple[Columns, ...], channel: int) -> list[Columns]:
    """Return one channel's numbers."""
    return [tuple(column[channel] for column in one) for one in columns]
