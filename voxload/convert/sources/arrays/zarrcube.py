"""ZarrCube: one array of a Zarr hierarchy as a raw cube, or one of the samples and time steps in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

from voxload.convert.sources.arrays.series import Index, Series
from voxload.convert.sources.protocol import RawCube, ReadInto, filled
from voxload.geometry import Box, chunks_touched
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Location, Missing, Reader, Volume, VolumeInfo
from voxload.readers.zarr.native import NativeZarrReader
from voxload.readers.zarr.reader import ZarrReader
from voxload.readers.zarr.route import NativeRoute

_PIECE_BYTES = 2**23
"""Bytes that zarr-python decodes in one call at least, where there are so many: a call takes a millisecond."""
_COPIES = 5
"""Times that zarr-python holds what it reads: as stored, twice where chunks lie in shards, decoded, and returned;
4.1 times measured with random bytes in shards."""


class ZarrCube:
    """An array as a whole, or the part of it that is one sample at one time step.

    An array that is not compressed is read through zarr-python, because a native reader maps its files, and any other
    one as a loader reads it; a few chunks at a time, because zarr-python returns a copy of all that it is asked for.

    Parameters
    ----------
    name
        The array; empty where the folder is one array.
    cube
        What is known of it; see `describe_array`.
    missing
        What to do about chunks that are not there.
    series, index
        The samples and time steps in the array, and which of them is the cube; None where it is all of the array.
    """

    def __init__(
        self,
        name: str,
        cube: RawCube,
        *,
        missing: Missing = Missing.ERROR,
        series: Series | None = None,
        index: Index = (0, 0),
    ) -> None:
        order = cube.order if series is None else series.order
        self._location = Location(str(cube.path), dataset=name, axes=order.axes)
        self._cube = filled(cube, missing)
        self._missing = missing
        is_part = series is not None and bool(series.fixed(index))
        self._channels = series.channels(index, cube.volume_shape[0]) if series is not None and is_part else None

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return self._cube

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the array for reading; chunks that are not there raise DataError, unless they are to be filled."""
        library = ZarrReader(self._location, self._missing)
        piece, channels = _piece(library.describe()), self._channels
        route = library.route
        if isinstance(route, NativeRoute) and route.pipeline.has_filters:
            reader: Reader = NativeZarrReader(library, route, self._missing)
        else:
            reader = library

        def read_into(box: Box, out: Volume) -> None:
            for part in _parts(box, piece):
                wanted = part if channels is None else _with_channels(channels, part)
                reader.read_into(wanted, out[(slice(None), *part.relative_to(box.start).slices)])

        try:
            yield read_into
        finally:
            reader.close()


def describe_array(path: Path, name: str, order: AxisOrder) -> RawCube:
    """Return what the metadata say of an array of a hierarchy, or of each sample and time step in it.

    Raises
    ------
    UsageError
        When its type is no number or its codecs are not installed.
    DataError
        When its metadata are damaged.
    """
    reader = ZarrReader(Location(str(path), dataset=name, axes=order.axes), Missing.ERROR)
    info, shape = reader.describe(), tuple(reader.array.shape)
    table = reader.index.table_bytes(shape)
    samples, steps, _ = order.lead(reader.index.layout.unit)
    reader.close()
    series = Series.of(order, shape)
    return RawCube(
        path,
        name,
        shape=series.cube.to_stored((info.lead[2], *info.spatial)),
        order=series.cube,
        dtype=info.native_dtype,
        # A chunk is decoded whole, with all samples and steps that it holds.
        scratch_bytes=_COPIES * prod(_piece(info)) * info.lead[2] * samples * steps * info.dtype.itemsize,
        table_bytes=table,
    )


def _with_channels(channels: tuple[int, int], box: Box) -> Box:
    """Return a spatial box with a range of channels in front."""
    return Box((channels[0], *box.start), (channels[1], *box.stop))


def _piece(info: VolumeInfo) -> tuple[int, ...]:
    """Return the extents (d, h, w), whole chunks, of what is asked of zarr-python at once."""
    piece = list((info.chunks or info.shape)[1:])
    for axis in (2, 1, 0):
        while piece[axis] < info.spatial[axis]:
            if 2 * prod(piece) * info.lead[2] * info.dtype.itemsize > _PIECE_BYTES:
                return tuple(piece)
            piece[axis] *= 2
    return tuple(piece)


def _parts(box: Box, piece: tuple[int, ...]) -> Iterator[Box]:
    """Yield the parts of a box that lie in one piece each."""
    touched = chunks_touched(box, piece)
    for place in itertools.product(*map(range, touched.start, touched.stop)):
        whole = Box.whole(piece).shift(tuple(index * width for index, width in zip(place, piece, strict=True)))
        part = whole.intersect(box)
        if part is not None:
            yield part
