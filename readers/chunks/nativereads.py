"""NativeReads: a volume's chunks, fetched, decoded and pasted by one call of the core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.errors import InternalError
from voxload.readers.decode import codecs, libraries  # noqa: F401
from voxload.readers.decode.bitshuffle import Bitshuffle
from voxload.readers.pasting.kernels import AXES
from voxload.readers.pasting.pasteplan import ChunkShape, Wanted, _numbers, fits
from voxload.readers.pasting.paster import _STORED, KINDS
from voxload.readers.scratch import address
from voxload.readers.team import before_fork, team

before_fork(function("end_core_helpers", ""))
os.register_at_fork(after_in_child=function("forget_core_helpers", ""))

_can_read = function("can_read", "r", "b")
_read_boxes = function("read_boxes", "rinrniwn", "i")
_MOST_STEPS = 8
_FILTERS = {
    codecs.DEFLATE: 0, codecs.ZSTD: 2, codecs.LZ4_HDF5: 3, codecs.LZ4_NUMCODECS: 4, codecs.BLOSC: 5, codecs.LZF: 6,
    codecs.Fletcher32(): 8,
}  # fmt: skip
"""Numbers of ``enum filter``."""
_BITSHUFFLE = 7
_MOST_LEFT = 4096
"""Chunks that are told of by number; of more, all are done the careful way."""


class NativeVolume:
    """What the core knows of a volume: ``struct volume``, and the arrays that it points to."""

    def __init__(self, numbers: npt.NDArray[np.int64], owners: Sequence[object], grid: tuple[int, ...]) -> None:
        self.numbers, self.grid = numbers, grid
        self._owners = owners

    @classmethod
    def of(
        cls, shape: ChunkShape, pipeline: codecs.Pipeline, grid: tuple[int, ...], table: Any, target: np.dtype[Any]
    ) -> NativeVolume | None:
        """Return the volume, or None where the core cannot decode it."""
        pad = AXES - len(shape.extents)
        steps: list[int] = []
        for step in pipeline.steps:
            if isinstance(step, Bitshuffle):
                steps += [_BITSHUFFLE, step.itemsize, step.block, int(step.compressor)]
            elif step in _FILTERS:
                steps += [_FILTERS[step], 0, 0, 0]
            else:
                return None
        if len(pipeline.steps) > _MOST_STEPS or prod(shape.extents) * shape.itemsize != pipeline.nbytes:
            return None
        stored = "u1" if shape.dtype.kind == "b" else shape.dtype.str[1:]
        columns = (
            np.ascontiguousarray(table.offsets, np.uint64),
            np.ascontiguousarray(table.sizes, np.int64),
            np.ascontiguousarray(table._masks, np.uint32),
        )
        if {column.size for column in columns} != {prod(grid)}:
            raise InternalError("chunk table", found=str([column.shape for column in columns]), expected=f"{grid}")
        strides = [stride * shape.itemsize for stride in shape.strides]
        numbers = [
            *(1,) * pad, *shape.extents, *(0,) * pad, *strides, *(1,) * pad, *grid,
            *steps, *(0,) * (4 * (_MOST_STEPS - len(pipeline.steps))),
            len(pipeline.steps), pipeline.shift, pipeline.nbytes, pipeline.is_shuffled,
            shape.itemsize, shape.is_swapped and shape.itemsize > 1,
            *map(address, columns), prod(grid),
            _STORED.index(stored), -1 if target == shape.dtype else KINDS[target],
        ]  # fmt: skip
        made = np.array(numbers, np.int64)
        return cls(made, columns, grid) if _can_read(made) else None


class NativeReads:
    """Reads boxes of one volume."""

    def __init__(self, volume: NativeVolume, file: Any, shape: ChunkShape) -> None:
        self._volume, self._file, self._shape = volume, file, shape

    def number(self, place: tuple[int, ...]) -> int:
        """Return a chunk's number, counted along the grid."""
        number = 0
        for index, count in zip(place, self._volume.grid, strict=True):
            number = number * count + index
        return number

    def read(self, wanted: Sequence[Wanted]) -> set[int] | None:
        """Fill boxes, and return the numbers of the chunks that were not pasted; None where all were."""
        pad = AXES - len(self._shape.extents)
        grid = self._volume.grid
        boxes = []
        for one in wanted:
            ends = zip(one.box.stop, self._shape.extents, grid, strict=True)
            if one.view.shape != one.box.shape or not fits(one.view) or any(e > n * g for e, n, g in ends):
                return set(range(prod(grid)))
            start, stop = (0,) * pad + one.box.start, (1,) * pad + one.box.stop
            boxes.append(_numbers(start, stop, one.view, self._shape))
        left = np.empty(_MOST_LEFT, np.uint64)
        table = np.array(boxes, np.uint64)
        missed = _read_boxes(
            self._volume.numbers, self._file._descriptor, self._file.size, table, len(boxes), team().threads, left, left.size
        )
        if not 0 <= missed <= _MOST_LEFT:
            return set(range(prod(grid)))
        return set(left[:missed].tolist()) if missed else None
