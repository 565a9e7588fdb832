"""StoredSource: a cube that lies in a file as it is, or in a stream, with what turns stored into true values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from voxload.convert.sources.flat import FlatFile
from voxload.convert.sources.inflated import InflatedFile, slowest_spatial
from voxload.convert.sources.protocol import RawCube, ReadInto, volume_view
from voxload.geometry import Box
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

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
