"""Tables: what a chain makes of every value that there is, for types of at most 16 bits.

A stored integer of 16 bits has 65,536 values, so a chain of any length is one look-up a voxel: its cost is that of
reading the stored type and writing the result. The table is made by the chain itself, so the results are its own, to
the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import types

from voxload.readers.compiling import compiled
from voxload.transforms.chain import Step, columns_of, run
from voxload.transforms.threads import share_out

Bits = npt.NDArray[Any]
"""Numbers as unsigned integers of their size."""

_SLAB = 2**15
"""Voxels of all channels together that one thread does at a time: what it writes stays in its nearest caches."""
_UNSIGNED: dict[int, torch.dtype] = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}


def has_table(volumes: torch.Tensor, steps: tuple[Step, ...]) -> bool:
    """Tell whether a table is to be used: it is smaller than what is looked up in it."""
    return volumes.itemsize <= 2 and volumes.numel() >= _entries(volumes.dtype) * _rows(volumes, steps)


def look_up(volumes: torch.Tensor, steps: tuple[Step, ...], out: torch.Tensor) -> None:
    """Write what a chain makes of volumes ``(B, C, voxels)`` into `out`, by all threads that read."""
    channels = volumes.shape[1]
    table = _table(steps, volumes.dtype, _rows(volumes, steps))
    rows = np.broadcast_to(table, (channels, table.shape[1]))
    source, target = _bits(volumes), _bits(out)
    kernel = _kernel(source.dtype, target.dtype)
    width = max(1, _SLAB // channels)
    tasks = [(item, first) for item in range(len(volumes)) for first in range(0, volumes.shape[2], width)]

    def work(task: tuple[int, int]) -> None:
        item, first = task
        kernel(source[item, :, first : first + width], rows, target[item, :, first : first + width])

    share_out(work, tasks, volumes.numel())


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


@cache
def _kernel(source: np.dtype[Any], target: np.dtype[Any]) -> Callable[[Bits, Bits, Bits], None]:
    """Return what looks up rows of one type; compiled at its first use, and kept on disk."""
    sizes: dict[int, Any] = {1: types.uint8, 2: types.uint16, 4: types.uint32}
    read, write = sizes[source.itemsize], sizes[target.itemsize]
    arguments = (
        types.Array(read, 2, "A", readonly=True),
        types.Array(write, 2, "A", readonly=True),
        types.Array(write, 2, "A"),
    )
    found: Callable[[Bits, Bits, Bits], None] = compiled(*arguments)(_look_up_rows)
    return found


def _look_up_rows(values: Any, table: Any, out: Any) -> None:
    for row in range(values.shape[0]):
        for place in range(values.shape[1]):
            out[row, place] = table[row, values[row, place]]
