"""Tables: the chunk tables that this process has read, and where the next one comes from."""

from __future__ import annotations

import os
import threading
from math import prod

import h5py

from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.sidecar import MIN_CHUNKS, Sidecar, cache_folder
from voxload.readers.remote.ranges import ObjectStamp
from voxload.readers.stamp import Stamp

MAX_KEPT_BYTES = 2**26
"""Bytes of the tables that a process keeps for files it may open again."""

_Key = tuple[Stamp | ObjectStamp, str]


class Tables:
    """A bounded number of chunk tables, the last used ones; safe to use from many threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: dict[_Key, ChunkTable] = {}

    def load(self, dataset: h5py.Dataset, stamp: Stamp | ObjectStamp) -> ChunkTable:
        """Return the table of a chunked dataset: a kept one, its sidecar's, or read from the file's index.

        `stamp` is the file's from before it was opened. Nothing is kept of a file that was written to just now, or
        while its table was read.

        Raises
        ------
        DataError
            When a chunk does not lie in the file; names it.
        """
        subject = f"{stamp.path}:{dataset.name.removeprefix('/')}"
        if not stamp.is_settled:
            table = ChunkTable.read(dataset)
            table.check(subject, stamp.size)
            return table
        key = (stamp, str(dataset.name))
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is not None:
                self._kept[key] = kept
                return kept
        table = _load(dataset, stamp, subject)
        with self._lock:
            self._kept[key] = table
            spare = self._max_bytes - sum(other.nbytes for other in self._kept.values())
            for old in list(self._kept):
                if spare >= 0:
                    break
                spare += self._kept.pop(old).nbytes
        return table


def _load(dataset: h5py.Dataset, stamp: Stamp | ObjectStamp, subject: str) -> ChunkTable:
    count = prod(-(-extent // width) for extent, width in zip(dataset.shape, dataset.chunks, strict=True))
    folder = cache_folder() if count >= MIN_CHUNKS else None
    sidecar = Sidecar(dataset, stamp, folder) if folder else None
    table = sidecar.load() if sidecar else None
    if table is not None:
        table.check(subject, stamp.size)
        return table
    table = ChunkTable.read(dataset)
    table.check(subject, stamp.size)
    stamp.check_unchanged()
    if sidecar:
        sidecar.save(table)
    return table


_tables = Tables(MAX_KEPT_BYTES)


def load_table(dataset: h5py.Dataset, stamp: Stamp | ObjectStamp) -> ChunkTable:
    """Return the table of a chunked dataset, from the process's tables; see `Tables.load`."""
    return _tables.load(dataset, stamp)


def _forget() -> None:
    """Start afresh in a forked child: a lock that another thread held stays locked there."""
    global _tables  # noqa: PLW0603 - tables belong to the process
    _tables = Tables(MAX_KEPT_BYTES)


os.register_at_fork(after_in_child=_forget)
