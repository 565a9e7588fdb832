"""Stream: bands of an open flat file, read and deinterleaved into chunks in one call that holds no interpreter lock.

Between two bands there is nothing but the system's call, so they may be short enough for the nearest large cache. What
the system does not give at once, whatever the reason, is left to the caller: only Python can tell what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numba import int32, int64, types, uint64

from voxload.convert.encode.deinterleave import UNITS, deinterleave_band, plan_deinterleaving, rows_of
from voxload.convert.sources.binary.flat import FlatReading
from voxload.convert.sources.protocol import RawCube
from voxload.geometry import Box
from voxload.readers.compiling import NUMBERS, TABLE, compiled
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

_Voxel = tuple[int, int, int]
_pread: Any = types.ExternalFunction("pread", int64(int32, uint64, uint64, int64))
_CHUNKS, _VOXELS = 0, 1
"""Places in a plan of parting: the address of chunks, and that of voxels."""
_ZERO, _ONE = uint64(0), uint64(1)


class BandReader:
    """The bands of a tile; for one thread.

    Parameters
    ----------
    reading
        The open file.
    bands
        Each band's first voxel in the tile, and the ``(C, d, h, w)`` array it is read into.
    chunks
        Chunks of the tile's shape, as `deinterleave_into_chunks` takes them.
    """

    def __init__(self, reading: FlatReading, bands: Sequence[tuple[_Voxel, Volume]], *, chunks: Volume) -> None:
        self._reading = reading
        _, block = bands[0]
        self._kernel, self._unit = _kernel(len(block), block.itemsize), np.empty(0, f"u{block.itemsize}")
        self._rows = rows_of(chunks, len(block))
        self._plans = np.array([plan_deinterleaving(chunks, voxels, start) for start, voxels in bands])
        places: list[int] = []
        runs: list[tuple[int, int]] = []
        for start, voxels in bands:
            found, length = self._runs(start, voxels.shape[1:])
            places.extend(found)
            runs.append((len(places), length))
        self._places, self._ends = np.array(places, np.uint64), np.array(runs, np.uint64)
        self._begin = places[0]

    def read(self, tile: _Voxel, chunks: Volume, *, first: int) -> int:
        """Read bands from the `first` on into the chunks of a tile; return the band that could not be read, or the end.

        Parameters
        ----------
        tile
            The tile's first voxel.
        chunks
            Where its voxels go: of the strides of those that were given before.
        first
            The first band that is read.
        """
        if self._reading.check is not None:
            self._reading.check()
        (begin, *_), _ = self._runs(tile, (1, 1, 1))
        request = np.array((self._reading.descriptor, begin - self._begin, first), np.uint64)
        self._plans[:, _CHUNKS] = address(chunks)
        return self._kernel(request, self._places, self._ends, self._plans, self._rows, self._unit)

    def _runs(self, start: _Voxel, extents: Sequence[int]) -> tuple[list[int], int]:
        """Return where the runs of a box begin in the file, and their bytes."""
        file = self._reading.file
        d, h, w = (lo + extent for lo, extent in zip(start, extents, strict=True))
        channels, *_ = file.order.to_volume(file.shape, 1)
        places, length = file.runs(file.order.box(Box(start, (d, h, w)), channels))
        return list(places), length


def can_read_bands(cube: RawCube, reading: FlatReading) -> bool:
    """Tell whether a file's bytes are the cube's voxels as they are, and one call parts all channels."""
    file = reading.file
    is_alike = (file.shape, file.order, file.dtype) == (cube.shape, cube.order, cube.dtype)
    return is_alike and file.dtype.isnative and (cube.volume_shape[0] == 1 or cube.order.axes[-1] == "C")


def _read(request: Any, places: Any, ends: Any, plans: Any, rows: Any, unit: Any) -> Any:
    """Read bands and part them; return the number of the first that was not given at once, or of bands.

    Parameters
    ----------
    request
        The file's descriptor, what is added to places, and the first band to read.
    places
        Where runs begin in the file.
    ends
        Of each band: the run that follows its last one, and the bytes of a run.
    plans
        A row for each band, see `plan_deinterleaving`.
    rows, unit
        As a kernel of parting takes them.
    """
    descriptor, begin, first = int32(request[0]), request[1], request[2]
    run = ends[first - _ONE, 0] if first else _ZERO
    bands = uint64(len(ends))
    for band in range(first, bands):
        at, last, length = plans[band, _VOXELS], ends[band, 0], ends[band, 1]
        while run < last:
            if _pread(descriptor, at, length, int64(begin + places[run])) != int64(length):
                return int64(band)
            at += length
            run += _ONE
        deinterleave_band(plans[band], rows, unit)
    return int64(bands)


@cache
def _kernel(channels: int, width: int) -> Callable[..., int]:
    """Return what reads bands of so many channels and bytes; takes two seconds the first time on a machine."""
    rows: Any = types.UniTuple
    arguments: tuple[Any, ...] = (
        NUMBERS,
        NUMBERS,
        TABLE,
        TABLE,
        rows(uint64, channels),
        types.Array(UNITS[width], 1, "C"),
    )
    kernel: Callable[..., int] = compiled(*arguments, returns=int64)(_read)
    return kernel
