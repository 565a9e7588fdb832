"""StoredSource: a cube that lies in a file as it is, or in a gzip or zlib stream.

What turns stored numbers into true values is here, too.

InflatedFile: an array in a gzip or zlib stream, read forwards in bounded memory. Where channels are the slowest axis,
a slab of one spatial axis lies in as many places as there are channels. Such a stream is decoded once when it is
opened: that verifies it whole and leaves a decoder at the beginning of each channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.binary.flat import FlatFile
from voxload.convert.sources.binary.inflater import STATE_BYTES, WORKING_BYTES, Inflater
from voxload.convert.sources.binary.streams import Stream, open_stream
from voxload.convert.sources.protocol import RawCube, ReadInto, volume_view
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

_EXACT_IN_FLOAT32 = 2
"""Bytes of the largest integers that float32 holds exactly: it has 24 bits for them."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """A linear map, worked out in float64 and rounded once."""

    slope: float
    """What a step of the stored number is worth."""
    intercept: float
    """The value of a stored zero."""

    @property
    def is_identity(self) -> bool:
        """Whether stored numbers are the values."""
        return self.slope == 1 and self.intercept == 0

    def dtype(self, stored: np.dtype[Any]) -> np.dtype[Any]:
        """Return the type of the values: float32 where it holds every stored number exactly, else float64."""
        if stored.kind == "f":
            return np.dtype(np.float32 if stored.itemsize <= np.dtype(np.float32).itemsize else np.float64)
        return np.dtype(np.float32 if stored.itemsize <= _EXACT_IN_FLOAT32 else np.float64)

    def __call__(self, stored: Volume, out: Volume) -> None:
        """Fill `out` with the values; raises FloatingPointError on a value beyond its type."""
        with np.errstate(over="raise"):
            values = np.multiply(stored, self.slope, dtype=np.float64)
            values += self.intercept
            out[...] = values


@dataclass(frozen=True, slots=True)
class InflatedFile:
    """An array in a compressed stream that ends with it, slowest axis first."""

    path: Path
    """The file."""
    offset: int
    """Bytes of the file before the stream."""
    skipped: int
    """Decoded bytes before the first voxel."""
    shape: tuple[int, ...]
    """Extents in the order of the bytes, slowest axis first."""
    dtype: np.dtype[Any]
    """Stored type, with the stored byte order."""
    order: AxisOrder
    """Axes in the order of the bytes."""

    @property
    def scratch_bytes(self) -> int:
        """Memory that reading takes beside the array it reads into."""
        parts = self.shape[0] if self.order.axes[0] == "C" else 1
        return parts * STATE_BYTES + WORKING_BYTES

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the file and yield the function that reads whole planes, forwards, into a (C, D, H, W) array.

        Raises
        ------
        DataError
            When the stream is damaged, ends before the last voxel or goes on behind it.
        """
        place = FlatFile(self.path, self.skipped, shape=self.shape, dtype=self.dtype, order=self.order)
        end = self.skipped + prod(self.shape) * self.dtype.itemsize
        stream = Stream(partial(Inflater.open, self.path, self.offset), end, is_whole=True)
        behind = 0
        with open_stream(place, stream) as read:

            def read_into(box: Box, out: Volume) -> None:
                nonlocal behind
                behind = self._check_order(self.order.box(box, out.shape[0]), behind)
                read(box, out)

            yield read_into

    def _check_order(self, stored: Box, behind: int) -> int:
        """Refuse parts of planes, and planes before those that are behind; return how many then are."""
        slowest = slowest_spatial(self.order)
        first, stop = stored.start[slowest], stored.stop[slowest]
        if first < behind:
            raise UsageError(
                f"{self.path}",
                found=f"a read of plane {first} after plane {behind - 1}",
                expected="reads in the order of the bytes: a compressed stream only goes forwards",
            )
        if stored.shape[slowest + 1 :] != self.shape[slowest + 1 :]:
            raise UsageError(
                f"{self.path}",
                found=f"box {stored} of shape {self.shape}",
                expected="whole planes of the slowest axis, as a compressed stream gives them",
                remedy="decompress the file first, or allow more memory with --max-memory",
            )
        return stop


def slowest_spatial(order: AxisOrder) -> int:
    """Return the place of the slowest spatial axis among the stored axes."""
    return 1 if order.axes[0] == "C" else 0


Decode = Callable[[Volume, Volume], None]
"""Fills its second array, of the type of the voxels, from its first, of the stored type in native byte order."""

_FLOAT64_BYTES = 8


@dataclass(frozen=True, slots=True)
class StoredSource:
    """One cube of a file whose header says where the voxels are."""

    cube: RawCube
    """Its description."""
    file: FlatFile | InflatedFile
    """Where the stored values are."""
    decode: Decode | None = None
    """What makes voxels of them; None where they are the voxels."""

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return self.cube

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the file for reading."""
        with self.file.open() as read_into:
            if self.decode is None:
                yield read_into
            else:
                yield _decoding(read_into, self.file, self.decode)


def scratch_bytes(file: FlatFile | InflatedFile, *, is_decoded: bool) -> int:
    """Return the memory that reading takes beside its target: a plane as stored and, to be decoded, in float64."""
    own = file.scratch_bytes if isinstance(file, InflatedFile) else 0
    axis = slowest_spatial(file.order)
    plane = prod(file.shape) // file.shape[axis]
    return own + (plane * (file.dtype.itemsize + _FLOAT64_BYTES) if is_decoded else 0)


def _decoding(read_into: ReadInto, file: FlatFile | InflatedFile, decode: Decode) -> ReadInto:
    """Return a reader that decodes plane after plane of the slowest spatial axis."""
    stored: np.dtype[Any] = file.dtype.newbyteorder("=")
    axis = "DHW".index(file.order.axes[slowest_spatial(file.order)])

    def read(box: Box, out: Volume) -> None:
        for index in range(box.start[axis], box.stop[axis]):
            plane = Box(_replaced(box.start, axis, index), _replaced(box.stop, axis, index + 1))
            shape = file.order.to_stored((len(out), *plane.shape))
            values = volume_view(file.order, np.empty(shape, dtype=stored))
            read_into(plane, values)
            with translated(f"{file.path}"):
                decode(values, out[(slice(None), *plane.relative_to(box.start).slices)])

    return read


def _replaced(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])
