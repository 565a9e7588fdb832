"""Metadata: what libhdf5 tells of a dataset once, when it is first needed; whoever has it reads without libhdf5."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.hdf5.checks import check_chunks
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.reader import Hdf5Reader
from voxload.readers.hdf5.route import NativeRoute
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.protocol import Location, Missing, ReadCost, VolumeInfo, closed
from voxload.readers.remote.ranges import ObjectStamp
from voxload.readers.storage.stamp import Stamp

MAX_KEPT_BYTES = 2**26
"""Bytes of the metadata that a process keeps for files it may open again."""
_OBJECT_BYTES = 2**12
"""About what one dataset's take, without its table."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """One dataset that is read natively; holds no file, and holds as long as the file has its stamp."""

    info: VolumeInfo
    """What is known of the volume."""
    order: AxisOrder
    """Its axes as stored."""
    route: NativeRoute
    """How its bytes are read."""
    grid: Place | None
    """Chunks along each axis, in stored axis order; None when storage is contiguous."""
    fill_value: Any
    """The value of voxels that were never written."""
    table: ChunkTable | None
    """Where the chunks lie; None when storage is contiguous."""

    @property
    def nbytes(self) -> int:
        """Bytes that this takes, about."""
        return _OBJECT_BYTES + (0 if self.table is None else self.table.nbytes)

    def cost(self, box: Box) -> ReadCost:
        """Return chunks and bytes of `box`; contiguous storage counts the box's own bytes."""
        stored = self.order.stored_box(box, self.info.lead)
        if self.table is not None:
            return self.table.cost(stored)
        size = stored.size * self.info.dtype.itemsize
        return ReadCost(0, size, size)

    def require(self, box: Box, missing: Missing) -> None:
        """Refuse voxels never written, unless they are to be filled."""
        if missing is Missing.ERROR and self.table is not None:
            check_chunks(self.table, self.order.stored_box(box, self.info.lead), str(self.info.location))


class MetadataCache:
    """The metadata of a bounded number of datasets, the last used ones; safe to use from many threads.

    A sample that is read once an epoch is opened once an epoch: asking libhdf5 takes milliseconds, and its lock.

    Parameters
    ----------
    max_bytes
        Most bytes that are kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._spare = max_bytes
        self._lock = threading.Lock()
        self._kept: dict[tuple[Location, Stamp | ObjectStamp], Metadata] = {}

    def find(self, location: Location, stamp: Stamp | ObjectStamp) -> Metadata | None:
        """Return what was learnt of a dataset when its file had the same stamp, or None."""
        with self._lock:
            kept = self._kept.pop((location, stamp), None)
            if kept is not None:
                self._kept[location, stamp] = kept
            return kept

    def keep(self, stamp: Stamp | ObjectStamp, metadata: Metadata) -> None:
        """Keep what was learnt of a file, whose `stamp` is from before it was opened.

        Nothing is kept of a file that was written to just now. Raises DataError where it was written to meanwhile.
        """
        if not stamp.is_settled:
            return
        stamp.check_unchanged()
        with self._lock:
            key = (metadata.info.location, stamp)
            old = self._kept.pop(key, None)
            self._kept[key] = metadata
            self._spare -= metadata.nbytes - (0 if old is None else old.nbytes)
            while self._spare < 0:
                self._spare += self._kept.pop(next(iter(self._kept))).nbytes


_known = MetadataCache(MAX_KEPT_BYTES)


def metadata_cache() -> MetadataCache:
    """Return what this process knows."""
    return _known


def _forget() -> None:
    """Start afresh in a forked child: a lock that another thread held stays locked there."""
    global _known  # noqa: PLW0603 - it belongs to the process
    _known = MetadataCache(MAX_KEPT_BYTES)


os.register_at_fork(after_in_child=_forget)


class LoadedMetadata:
    """A lazy that was over before.

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


class LazyMetadata:
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
    metadata_cache().keep(reader.source.stamp, metadata)
    return metadata
