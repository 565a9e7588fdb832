"""MemoryMapReader: boxes of an array that lies in a file as it would in memory."""

from __future__ import annotations

import numpy as np

from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.faults import translated
from voxload.readers.protocol import (
    Location,
    ReadCost,
    Volume,
    VolumeInfo,
    check_box,
    check_request,
    check_volume,
    closed,
)
from voxload.readers.stamp import Stamp


class MemoryMapReader:
    """Reads boxes of a memory-mapped array; see the Reader contract.

    Meant for node-local files: on a network file system a failing read of a map ends the process.

    Parameters
    ----------
    location
        The file.
    array
        The map of the whole file, in stored axis order.
    order
        Its axes.
    format_name
        Storage format in words.
    """

    def __init__(self, location: Location, array: Volume, *, order: AxisOrder, format_name: str) -> None:
        self._array: Volume | None = array
        self._order = order
        self._stamp = Stamp.of(location.path)
        self._info = VolumeInfo(
            location=location,
            format=format_name,
            axes=order.axes,
            shape=order.to_volume(array.shape, 1),
            dtype=array.dtype,
            chunks=None,
            shards=None,
            codecs=(),
            route="memory map",
        )
        check_volume(self._info)

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._info

    def cost(self, box: Box) -> ReadCost:
        """Return the bytes of the box's rows; the system reads whole pages of them."""
        check_box(self._info, box)
        size = self._info.shape[0] * box.size * self._info.dtype.itemsize
        return ReadCost(0, size, size)

    def read_into(self, box: Box, out: Volume) -> None:
        """Copy `box` into `out`; only pages that hold its rows are read."""
        check_request(self._info, box, out)
        if self._array is None:
            raise closed(self._info)
        with translated(f"{self._info.location}, box {box}"):
            # Beyond the end of a file that was cut short there are no pages: reading them would end the process.
            self._stamp.check_unchanged()
            np.copyto(self._order.view(out), self._array[self._order.box(box, self._info.shape[0]).slices])

    def close(self) -> None:
        """Drop the map; the file is unmapped with the last array that looks into it."""
        self._array = None
