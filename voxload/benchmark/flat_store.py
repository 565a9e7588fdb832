"""Flat store: generated samples in files without chunks, npy and raw, written by position."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np

from voxload.benchmark.dataset_plan import DatasetPlan
from voxload.benchmark.storage import StoreFormat, WriteBlock
from voxload.geometry import Box
from voxload.readers.protocol import Volume


@contextmanager
def open_flat(path: Path, plan: DatasetPlan) -> Iterator[WriteBlock]:
    """Make a file and yield what writes blocks of it; raises OSError when the storage refuses."""
    shape, dtype, order = plan.stored_shape, plan.stored_dtype, plan.storage.order
    with path.open("wb", buffering=0) as file:
        if plan.storage.format is StoreFormat.NPY:
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
        offset, descriptor = file.tell(), file.fileno()

        def write(box: Box, block: Volume) -> None:
            stored = np.ascontiguousarray(order.view(block), dtype=dtype)
            begin = order.box(box, plan.shape[0]).start
            for first, run in _runs(stored, begin, shape):
                _write(descriptor, offset + first * dtype.itemsize, run)

        yield write


def _runs(block: Volume, begin: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[int, Volume]]:
    """Yield the parts of a block that lie in one piece in an array of `shape`, each with the place of its first voxel.

    `begin` is where the block begins in the array.
    """
    split = len(shape) - 1
    while split and block.shape[split] == shape[split]:
        split -= 1
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for index in np.ndindex(*block.shape[:split]):
        where = [lo + step for lo, step in zip(begin, (*index, *(0,) * (len(shape) - split)), strict=True)]
        yield sum(map(int.__mul__, where, strides)), block[index]


def _write(descriptor: int, position: int, run: Volume) -> None:
    """Write until all is written: the system takes 2 GiB at most at once, and less on a disk that is nearly full."""
    content = run.reshape(-1).view(np.uint8).data
    while content:
        count = os.pwrite(descriptor, content, position)
        content, position = content[count:], position + count
