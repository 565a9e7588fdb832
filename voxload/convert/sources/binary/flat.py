"""FlatFile: boxes of an array that lies in a file without chunks, read by position; FlatSource: one that is a cube.

A memory map would be shorter, but its pages count as this process's memory and an I/O error in one ends
the process; reading by position keeps both promises of a conversion: bounded memory and a clear error.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.protocol import RawCube, ReadInto
from voxload.errors import DataError
from voxload.files.regular import open_regular
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

DEFAULT_DATASET = "volume"
"""Name of a volume whose file gives it none."""

Fill = Callable[[memoryview, int], None]
"""Fills all of a buffer with the bytes from a position on, or raises: of a file, a stream, the payload of records."""

_MAX_READ_BYTES = 2**30
"""Most bytes asked of the system at once; Linux gives at most 2 GiB less a page."""


@dataclass(frozen=True, slots=True)
class FlatFile:
    """An array in a file, from `offset` to the end, slowest axis first."""

    path: Path
    """The file."""
    offset: int
    """Bytes before the first voxel."""
    shape: tuple[int, ...]
    """Extents in the order of the bytes, slowest axis first."""
    dtype: np.dtype[Any]
    """Stored type, with the stored byte order."""
    order: AxisOrder
    """Axes in the order of the bytes."""

    def check_size(self) -> None:
        """Refuse a file that is not exactly as long as its array; raises DataError with both sizes."""
        with translated(str(self.path)):
            found = self.path.stat().st_size
        expected = self.offset + prod(self.shape) * self.dtype.itemsize
        if found != expected:
            raise DataError(
                f"{self.path}",
                found=f"{found} bytes",
                expected=f"{expected} bytes for {self.dtype.str} {self.shape}",
                remedy="the file is truncated, shape or dtype are wrong, or it is no cube and has to lie elsewhere",
            )

    @contextmanager
    def open(self, check: Callable[[], object] | None = None) -> Iterator[ReadInto]:
        """Open the file and yield what reads a spatial box into a (C, D, H, W) array: a `FlatReading`.

        Before each reading, `check` raises where the file is no longer the one it was.
        """
        with translated(str(self.path)), open_regular(self.path, buffering=0) as file:
            yield FlatReading(self, file.fileno(), check)

    def read(self, fill: Fill, box: Box, out: Volume) -> None:
        """Read a spatial box into a (C, D, H, W) array; the bytes are asked for in ascending order of position.

        Whole planes of the slowest axis are asked for at once, as far as they follow one another.
        """
        target = self.order.view(out)
        stored = self.order.box(box, out.shape[0])
        rows = target if target.flags.c_contiguous else np.empty(stored.shape, dtype=target.dtype)
        content = rows.data.cast("B")
        starts, length = self.runs(stored)
        for number, start in enumerate(starts):
            fill(content[number * length : (number + 1) * length], start)
        if not self.dtype.isnative:
            rows.byteswap(inplace=True)
        if rows is not target:
            np.copyto(target, rows)

    def runs(self, box: Box) -> tuple[Iterator[int], int]:
        """Return where the contiguous runs of a stored `box` begin in the file, in its own order, and their bytes."""
        extents = box.shape
        split = len(extents)
        while split and extents[split:] == self.shape[split:]:
            split -= 1
        strides = self._strides
        first = self.offset + sum(map(operator.mul, box.start, strides))
        steps = [range(0, extent * stride, stride) for extent, stride in zip(extents[:split], strides, strict=False)]
        return map(sum, itertools.product(*steps, (first,))), prod(extents[split:]) * self.dtype.itemsize

    @property
    def _strides(self) -> tuple[int, ...]:
        """Bytes between neighbours along each axis."""
        return tuple(itertools.accumulate(self.shape[:0:-1], operator.mul, initial=self.dtype.itemsize))[::-1]


@dataclass(frozen=True, slots=True)
class FlatReading:
    """An open flat file; called, it reads a spatial box as `FlatFile.read` does."""

    file: FlatFile
    """What it holds."""
    descriptor: int
    """The open file, valid as long as the block of `FlatFile.open` lasts."""
    check: Callable[[], object] | None = None
    """Raises where the file changed; asked before each reading."""

    def __call__(self, box: Box, out: Volume) -> None:
        """Read a box into a (C, D, H, W) array."""
        if self.check is not None:
            self.check()
        self.file.read(partial(fill_from, self.file.path, self.descriptor), box, out)


@dataclass(frozen=True, slots=True)
class FlatSource:
    """A cube that lies in a file without chunks."""

    cube: RawCube
    """What is known of it."""
    file: FlatFile
    """Where it lies."""
    check: Callable[[], object] | None = None
    """Reads the cube's bytes and compares their checksum, where the file keeps one; it raises DataError."""

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return self.cube

    def open(self) -> AbstractContextManager[ReadInto]:
        """Open the file for reading; a checksum is compared first, as boxes may be asked for in any order."""
        if self.check is not None:
            self.check()
        return self.file.open()


def fill_from(path: Path, descriptor: int, content: memoryview, start: int) -> None:
    """Read bytes of the open file at `path` until `content` is full; raises DataError where the file ends before."""
    position = 0
    while position < len(content):
        part = content[position : position + _MAX_READ_BYTES]
        try:
            count = os.preadv(descriptor, [part], start + position)
        except OSError:
            with translated(str(path)):  # entered here alone: it takes as long as to read a short row
                raise
        if not count:
            raise DataError(
                f"{path}",
                found=f"the end of the file at byte {start + position}",
                expected=f"{len(content) - position} bytes more",
                remedy="the file was cut while it was read: copy it again",
            )
        position += count


def stored_file(
    path: Path, offset: int, *, shape: tuple[int, ...], dtype: np.dtype[Any], order: AxisOrder, is_fortran: bool
) -> FlatFile:
    """Return the checked flat file of an array; Fortran order is the same bytes with the axes turned round."""
    if is_fortran:
        shape, order = shape[::-1], AxisOrder(order.axes[::-1])
    file = FlatFile(path, offset, shape=shape, dtype=dtype, order=order)
    describe_flat(file)
    file.check_size()
    return file


def describe_flat(file: FlatFile) -> RawCube:
    """Return the description of a flat file; raises UsageError on a type that is no voxel."""
    return RawCube(file.path, DEFAULT_DATASET, shape=file.shape, order=file.order, dtype=file.dtype.newbyteorder("="))
