"""NativeHdf5Reader: boxes of an HDF5 dataset without libhdf5, by as many threads as there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.chunked import ChunkedVolume, Fetched, Place
from voxload.readers.faults import translated
from voxload.readers.file import FileBytes
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.reader import Hdf5Reader
from voxload.readers.hdf5.route import NativeRoute
from voxload.readers.paste import Paster
from voxload.readers.protocol import ReadCost, Volume, VolumeInfo, check_request


class NativeHdf5Reader:
    """Reads boxes of one HDF5 dataset; see the Reader contract.

    libhdf5 is asked for metadata only: where the chunks lie and how they were filtered. Bytes are read, decoded and
    pasted by the process's team of threads, which hold neither h5py's lock nor the interpreter's.

    Parameters
    ----------
    reader
        The same dataset through h5py; it is closed with this reader.
    route
        How its bytes are read.
    """

    def __init__(self, reader: Hdf5Reader, route: NativeRoute) -> None:
        self._reader = reader
        self._route = route
        self._info = replace(reader.describe(), route="native")
        with translated(self._info.location.path):
            self._file = FileBytes(self._info.location.path, may_map=not route.pipeline.steps)
        self._table: ChunkTable | None = None
        is_chunked = route.offset is None
        fetch = self._chunk if is_chunked else self._whole
        subject = str(self._info.location)
        self._volume = ChunkedVolume(subject, route.shape, route.pipeline, fetch, is_divisible=not is_chunked)

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._info

    def cost(self, box: Box) -> ReadCost:
        """Return chunks and bytes of `box`; contiguous storage counts the box's own bytes."""
        return self._reader.cost(box)

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`; only its chunks, or the pages of its rows, are read."""
        check_request(self._info, box, out)
        if not box.size:
            return
        with translated(f"{self._info.location}, box {box}"):
            stored = self._reader.require(box)
            self._table = self._reader.table()
            self._file.check_unchanged()
            view = self._reader.order.view(out)
            if Paster.fits(view):
                self._volume.read(stored, view, fill=self._fill)
            else:
                turned = np.empty(view.shape, view.dtype)
                self._volume.read(stored, turned, fill=self._fill)
                np.copyto(view, turned)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._reader.close()

    def _chunk(self, place: Place) -> Fetched | None:
        """Return a chunk as stored."""
        found = self._table.find(place) if self._table else None
        if found is None:
            return None
        expected = self._route.pipeline.nbytes
        if not self._route.pipeline.steps and found.size != expected:
            raise DataError(found=f"{found.size} bytes", expected=f"{expected}")
        return Fetched(self._file.read(found.offset, found.size), found.mask)

    def _whole(self, _place: Place) -> Fetched:
        """Return contiguous storage as the one chunk that it is: a look into the map."""
        return Fetched(self._file.read(self._route.offset or 0, self._route.pipeline.nbytes))

    def _fill(self, view: Volume) -> None:
        view[...] = self._reader.fill_value
