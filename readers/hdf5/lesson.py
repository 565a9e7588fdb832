"""Lesson: a dataset's metadata, asked of libhdf5 when they are first needed, and its file closed then."""

from __future__ import annotations

import threading

from voxload.readers.hdf5.metadata import Metadata, known
from voxload.readers.hdf5.reader import Hdf5Reader
from voxload.readers.hdf5.route import NativeRoute
from voxload.readers.parts import Place
from voxload.readers.protocol import VolumeInfo, closed


class Learnt:
    """A lesson that was over before.

    Parameters
    ----------
    metadata
        What was learnt.
    """

    def __init__(self, metadata: Metadata) -> None:
        self.route, self.info, self.grid = metadata.route, metadata.info, metadata.grid
        self._metadata = metadata

    def metadata(self) -> Metadata:
        """Return all that libhdf5 told."""
        return self._metadata

    def close(self) -> None:
        """Do nothing."""


class Lesson:
    """What there is to learn of one dataset; safe to use from many threads.

    Where its chunks lie is not asked before somebody reads: the index of many chunks takes long.

    Parameters
    ----------
    reader
        The dataset through h5py; it is closed once everything is learnt, or with this.
    route
        How its bytes are read.
    """

    def __init__(self, reader: Hdf5Reader, route: NativeRoute) -> None:
        self.route = route
        self.info: VolumeInfo = reader.describe()
        self.grid: Place | None = reader.grid
        self._lock = threading.Lock()
        self._metadata: Metadata | None = None
        self._reader: Hdf5Reader | None = reader
        if self.grid is None:
            self.metadata()

    def metadata(self) -> Metadata:
        """Return all that libhdf5 tells; raises DataError where a chunk does not lie in the file."""
        metadata = self._metadata
        if metadata is not None:  # nearly always
            return metadata
        with self._lock:
            if self._metadata is None:
                if self._reader is None:
                    raise closed(self.info)
                self._metadata = _ask(self._reader, self.route)
                self._reader.close()
                self._reader = None
            return self._metadata

    def close(self) -> None:
        """Close the file, if it is still open."""
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _ask(reader: Hdf5Reader, route: NativeRoute) -> Metadata:
    metadata = Metadata(
        info=reader.describe(),
        order=reader.order,
        route=route,
        grid=reader.grid,
        fill_value=reader.fill_value,
        table=reader.table(),
    )
    known().keep(reader.source.stamp, metadata)
    return metadata
