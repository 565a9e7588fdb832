"""NativeReads: a volume's chunks, fetched, decoded and pasted by one call of C."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.readers import _core
from voxload.readers.decode import codecs, libraries  # noqa: F401
from voxload.readers.decode.bitshuffle import Bitshuffle
from voxload.readers.pasting.kernels import AXES
from voxload.readers.pasting.pasteplan import ChunkShape, _numbers, fits
from voxload.readers.pasting.paster import _STORED, KINDS
from voxload.readers.team import before_fork, team

before_fork(_core.end_helpers)
os.register_at_fork(after_in_child=_core.forget_helpers)

_FILTERS = {
    codecs.DEFLATE: 0, codecs.ZSTD: 2, codecs.LZ4_HDF5: 3, codecs.LZ4_NUMCODECS: 4, codecs.BLOSC: 5, codecs.LZF: 6,
    codecs.Fletcher32(): 8,
}


def native_volume(shape: ChunkShape, pipeline: codecs.Pipeline, grid: tuple[int, ...], table: Any, target: np.dtype[Any]) -> Any:
    """Return the volume for the core, or None where it cannot decode it."""
    pad = AXES - len(shape.extents)
    strides = [0] * pad + [stride * shape.itemsize for stride in shape.strides]
    numbers = np.array([*(1,) * pad, *shape.extents, *strides, *(1,) * pad, *grid], np.uint64)
    steps = []
    for step in pipeline.steps:
        if isinstance(step, Bitshuffle):
            steps.append([7, step.itemsize, step.block, int(step.compressor)])
        elif step in _FILTERS:
            steps.append([_FILTERS[step], 0, 0, 0])
        else:
            return None
    if len(steps) > 8 or prod(shape.extents) * shape.itemsize != pipeline.nbytes:
        return None
    stored = "u1" if shape.dtype.kind == "b" else shape.dtype.str[1:]
    cast = -1 if target == shape.dtype else KINDS[target]
    volume = _core.Volume(
        numbers, shape.itemsize, pipeline.nbytes, shape.is_swapped and shape.itemsize > 1, pipeline.is_shuffled,
        np.array(steps, np.uint64).reshape(-1, 4), pipeline.shift,
        *(column.reshape(-1) for column in (table.offsets, table.sizes, table._masks)), _STORED.index(stored), cast,
    )
    return volume if volume.can_read() else None


class NativeReads:
    """Reads boxes of one volume."""

    def __init__(self, volume: Any, file: Any, shape: ChunkShape, grid: tuple[int, ...]) -> None:
        self._volume, self._file, self._shape, self._grid = volume, file, shape, grid

    def number(self, place: tuple[int, ...]) -> int:
        number = 0
        for index, count in zip(place, self._grid, strict=True):
            number = number * count + index
        return number

    def read(self, wanted: Sequence[Any]) -> set[int] | None:
        pad = AXES - len(self._shape.extents)
        boxes = []
        for one in wanted:
            if one.view.shape != one.box.shape or not fits(one.view):
                return set(range(prod(self._grid)))
            start, stop = (0,) * pad + one.box.start, (1,) * pad + one.box.stop
            boxes.append(_numbers(start, stop, one.view, self._shape))
        left = self._volume.read(self._file._descriptor, self._file.size, np.array(boxes, np.uint64), team().threads)
        return None if left is None else {chunk for chunk, _ in left}
