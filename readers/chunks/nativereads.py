"""NativeReads: a volume's chunks, fetched, decoded and pasted by one call of the core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.errors import InternalError
from voxload.readers.chunks.checksums import Checksums
from voxload.readers.decode import codecs, libraries  # noqa: F401
from voxload.readers.decode.bitshuffle import Bitshuffle
from voxload.readers.knownreads import KnownReads, base_of, key_of
from voxload.readers.pasting.kernels import AXES, LINE
from voxload.readers.pasting.pasteplan import ChunkShape, Wanted, _numbers, fits
from voxload.readers.pasting.paster import kinds_of
from voxload.readers.requests import Request
from voxload.readers.scratch import address
from voxload.readers.storage.file import FileBytes
from voxload.readers.team import before_fork, team

before_fork(function("end_core_helpers", ""))
os.register_at_fork(after_in_child=function("forget_core_helpers", ""))

_can_read = function("can_read", "r", "b")
_read_boxes = function("read_boxes", "rinrniwn", "i")
_read_again = function("read_again", "pipppnni", "b")
_TO, _MAY_STREAM = 12, 17
"""Columns of ``struct wanted``."""
_MOST_STEPS = 8
_FILTERS = {
    codecs.DEFLATE: 0, codecs.ZSTD: 2, codecs.LZ4_HDF5: 3, codecs.LZ4_NUMCODECS: 4, codecs.BLOSC: 5, codecs.LZF: 6,
    codecs.GZIP: 1, codecs.Fletcher32(): 8, codecs.Crc32c(): 9,
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
        cls,
        shape: ChunkShape,
        pipeline: codecs.Pipeline,
        *,
        grid: tuple[int, ...],
        table: Any,
        target: np.dtype[Any],
        checksums: Checksums | None,
    ) -> NativeVolume | None:
        """Return the volume, or None where the core cannot decode it.

        Parameters
        ----------
        shape, pipeline
            How elements lie in chunks, and chunks are stored.
        grid
            Chunks along each axis.
        table
            Where they are.
        target
            What voxels are read as.
        checksums
            What chunks are compared with; None where nothing is recorded.
        """
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
        columns = (
            np.ascontiguousarray(table.offsets, np.uint64),
            np.ascontiguousarray(table.sizes, np.int64),
            np.ascontiguousarray(table.masks, np.uint32),
        )
        if {column.size for column in columns} != {prod(grid)}:
            raise InternalError("chunk table", found=str([column.shape for column in columns]), expected=f"{grid}")
        sums: tuple[npt.NDArray[Any], ...] = ()
        if checksums is not None:
            sums = np.ascontiguousarray(checksums.values), np.ascontiguousarray(checksums.present)
        strides = [stride * shape.itemsize for stride in shape.strides]
        numbers = [
            *(1,) * pad, *shape.extents, *(0,) * pad, *strides, *(1,) * pad, *grid,
            *steps, *(0,) * (4 * (_MOST_STEPS - len(pipeline.steps))),
            len(pipeline.steps), pipeline.shift, pipeline.nbytes, pipeline.is_shuffled,
            shape.itemsize, shape.is_swapped and shape.itemsize > 1,
            *[address(column) for column in columns], prod(grid),
            *([address(one) for one in sums] or (0, 0)),
            *kinds_of(shape.dtype, target),
        ]  # fmt: skip
        made = np.array(numbers, np.int64)
        return cls(made, (*columns, *sums), grid) if _can_read(made) else None


@dataclass(frozen=True, slots=True)
class _Known:
    """A read that was made before."""

    boxes: npt.NDArray[np.uint64]
    """Of arrays that begin at address 0."""
    at: int
    """Address of `boxes`."""
    unit: int
    """Bytes that the array's address must be a multiple of, as that of the first read was."""


class NativeReads:
    """Reads boxes of one volume from one file; safe to use from many threads at once.

    Parameters
    ----------
    volume
        The volume.
    file
        Its file, open.
    shape
        How elements lie in its chunks.
    """

    def __init__(self, volume: NativeVolume, file: FileBytes, shape: ChunkShape) -> None:
        self._volume, self._file, self._shape = volume, file, shape
        self._stamp = file.stamp.numbers()
        self._path = np.frombuffer(os.fsencode(file.path) + b"\0", np.uint8)
        self._addresses = address(volume.numbers), address(self._stamp), address(self._path)
        self._known: KnownReads[_Known] = KnownReads()

    def number(self, place: tuple[int, ...]) -> int:
        """Return a chunk's number, counted along the grid."""
        number = 0
        for index, count in zip(place, self._volume.grid, strict=True):
            number = number * count + index
        return number

    def read(self, wanted: Sequence[Wanted]) -> set[int] | None:
        """Fill boxes, and return the numbers of the chunks that were not pasted; None where all were."""
        grid = self._volume.grid
        boxes = self._boxes(wanted)
        if boxes is None:
            return set(range(prod(grid)))
        left = np.empty(_MOST_LEFT, np.uint64)
        missed = _read_boxes(
            self._volume.numbers,
            self._file.descriptor,
            self._file.size,
            boxes,
            len(boxes),
            team().threads,
            left,
            left.size,
        )
        if not 0 <= missed <= _MOST_LEFT:
            return set(range(prod(grid)))
        return set(left[:missed].tolist()) if missed else None

    def _boxes(self, wanted: Sequence[Wanted]) -> npt.NDArray[np.uint64] | None:
        """Return boxes as the core takes them; None where one does not fit."""
        pad = AXES - len(self._shape.extents)
        boxes = []
        for one in wanted:
            ends = zip(one.box.stop, self._shape.extents, self._volume.grid, strict=True)
            if one.view.shape != one.box.shape or not fits(one.view) or any(e > n * g for e, n, g in ends):
                return None
            start, stop = (0,) * pad + one.box.start, (1,) * pad + one.box.stop
            boxes.append(_numbers(start, stop, one.view, self._shape))
        return np.array(boxes, np.uint64)

    def remember(self, requests: Sequence[Request], wanted: Sequence[Wanted]) -> None:
        """Remember a read, of which `wanted` are the boxes and arrays in stored axis order."""
        base, boxes = address(requests[0].out), self._boxes(wanted)
        if boxes is None:
            return
        unit = LINE if boxes[:, _MAY_STREAM].any() else wanted[0].view.itemsize
        boxes[:, _TO] -= np.uint64(base)
        self._known.add(key_of(requests, base), _Known(boxes, address(boxes), unit))

    def read_again(self, requests: Sequence[Request]) -> bool:
        """Fill the arrays of a read that was made before, or such arrays; False where it is to be made as if new.

        What was checked then holds as long as the file is what it was, which is looked at.
        """
        base = base_of(requests)
        if base is None:
            return False
        key = key_of(requests, base)
        known = self._known.find(key)
        if known is None or base % known.unit:
            return False
        volume, stamp, path = self._addresses
        descriptor, threads = self._file.descriptor, team().threads
        if _read_again(volume, descriptor, stamp, path, known.at, len(known.boxes), base, threads):
            return True
        self._known.drop(key)
        return False
