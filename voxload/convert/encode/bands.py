"""Stream: bands of an open flat file, read and deinterleaved into chunks in one call that holds no interpreter lock.

Between two bands there is nothing but the system's call, so they may be short enough for the nearest large cache. What
the system does not give at once, whatever the reason, is left to the caller: only Python can tell what went wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from voxload.convert.encode.deinterleave import alternates, plan_deinterleaving
from voxload.convert.sources.binary.flat import FlatReading
from voxload.convert.sources.protocol import RawCube
from voxload.core.library import function
from voxload.errors import InternalError
from voxload.geometry import Box
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

_Voxel = tuple[int, int, int]
_CHUNKS = 0
"""Place in a plan of parting: the address of chunks."""

_read_bands = function("read_bands", "innrrrnnn", "i")


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
        self._reading, self._bands = reading, [voxels for _, voxels in bands]
        self._chunks = (chunks.dtype, chunks.shape, chunks.strides)
        self._voxel = (len(self._bands[0]), self._bands[0].itemsize)
        self._plans = np.array([plan_deinterleaving(chunks, voxels, start) for start, voxels in bands])
        places: list[int] = []
        runs: list[tuple[int, int]] = []
        for start, voxels in bands:
            found, length = self._runs(start, voxels.shape[1:])
            self._check(voxels, len(found) * length)
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

        Raises
        ------
        InternalError
            For other chunks, or a band that there is not.
        """
        form = (chunks.dtype, chunks.shape, chunks.strides)
        if form != self._chunks or not chunks.flags.writeable or not 0 <= first <= len(self._plans):
            found = f"{chunks.dtype} {chunks.shape} by {chunks.strides}, band {first}"
            raise InternalError("chunks", found=found, expected=f"{self._chunks}, of {len(self._plans)} bands")
        if self._reading.check is not None:
            self._reading.check()
        (begin, *_), _ = self._runs(tile, (1, 1, 1))
        self._plans[:, _CHUNKS] = address(chunks)
        done: int = _read_bands(
            self._reading.descriptor,
            begin - self._begin,
            first,
            self._places,
            self._ends,
            self._plans,
            len(self._plans),
            *self._voxel,
        )
        return done

    def _check(self, voxels: Volume, nbytes: int) -> None:
        """Refuse a band that is no room for its bytes as they are in the file: the system writes there."""
        stored = self._reading.file.order.view(voxels)
        is_room = stored.flags.c_contiguous and stored.flags.writeable and stored.nbytes == nbytes
        if not (is_room and alternates(voxels)) or (len(voxels), voxels.itemsize) != self._voxel:
            found = f"{voxels.dtype} {voxels.shape} by {voxels.strides}"
            raise InternalError("band", found=found, expected=f"contiguous room for {nbytes} bytes, channels fastest")

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
