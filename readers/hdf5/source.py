"""Source: the file or object that an HDF5 reader reads, for libhdf5 and for threads that read without it."""

from __future__ import annotations

from typing import BinaryIO, Protocol, cast

import h5py
import numpy as np
import numpy.typing as npt

from voxload.readers.hdf5.file import has_writer, is_open_for_writing, open_file
from voxload.readers.remote import Traffic
from voxload.readers.remote.file import RemoteFile
from voxload.readers.remote.objects import Facts
from voxload.readers.remote.ranges import ObjectStamp, open_object
from voxload.readers.scratch import Bytes
from voxload.readers.storage.file import FileBytes
from voxload.readers.storage.stamp import Stamp
from voxload.readers.store import is_url


class Ranges(Protocol):
    """Ranges of one file or object; see `FileBytes`, whose rules they keep."""

    path: str
    """Its path or URL."""
    is_local: bool
    """Whether it is on a file system of this node."""

    @property
    def map(self) -> Bytes | None:
        """The map of the whole file, or None where its ranges are read."""
        ...

    @property
    def stamp(self) -> Stamp | ObjectStamp:
        """The file as it was when it was opened."""
        ...

    def check_unchanged(self) -> None:
        """Refuse a file that changed since it was opened."""
        ...

    def read(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset`, valid until this thread reads again."""
        ...

    def fresh(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset` in memory of their own."""
        ...

    def holds(self, offsets: npt.NDArray[np.uint64], length: int) -> bool:
        """Tell whether ranges of `length` bytes all lie in the file."""
        ...

    def is_cold(self, offset: int) -> bool:
        """Tell whether the byte at `offset` is not in memory."""
        ...

    def announce(self, offset: int, length: int) -> None:
        """Tell the system that a range will be read."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Source(Protocol):
    """Where an HDF5 file is."""

    @property
    def stamp(self) -> Stamp | ObjectStamp:
        """The file as it was before libhdf5 opened it."""
        ...

    def now(self) -> Stamp | Facts | None:
        """Return what tells the file as it is now from itself once it was written anew; None where it is gone."""
        ...

    @property
    def traffic(self) -> Traffic | None:
        """What was asked of a remote storage; None of local files."""
        ...

    def open(self) -> h5py.File:
        """Open it with h5py; raises as `open_file` does."""
        ...

    def is_open_for_writing(self) -> bool:
        """Tell whether a writer has the file open."""
        ...

    def may_be_written(self) -> bool:
        """Tell whether a writer may have opened the file since it got its stamp."""
        ...

    def ranges(self, *, may_map: bool) -> Ranges:
        """Open its ranges for threads that read without libhdf5."""
        ...

    def settle(self) -> None:
        """Let go of what only libhdf5 wanted: it has learnt where the chunks are."""
        ...


class _LocalSource:
    """A file on a file system."""

    traffic = None

    def __init__(self, path: str) -> None:
        self._path = path
        self.stamp = Stamp.of(path)

    def now(self) -> Stamp:
        return Stamp.of(self._path)

    def open(self) -> h5py.File:
        return open_file(self._path)

    def is_open_for_writing(self) -> bool:
        return is_open_for_writing(self._path)

    def may_be_written(self) -> bool:
        return self.is_open_for_writing()

    def ranges(self, *, may_map: bool) -> Ranges:
        return FileBytes(self._path, may_map=may_map)

    def settle(self) -> None:
        pass


class _RemoteSource:
    """An object behind a URL; h5py reads it as a file of Python's, and holds its lock while it does."""

    def __init__(self, url: str) -> None:
        self._data, head = open_object(url)
        self._file = RemoteFile(self._data, head)
        self.stamp = self._data.stamp
        self.traffic = self._data.store.traffic

    def now(self) -> Facts | None:
        return self._data.store.facts("")

    def open(self) -> h5py.File:
        return open_file(self._file)

    def is_open_for_writing(self) -> bool:
        return has_writer(cast("BinaryIO", self._file))

    def may_be_written(self) -> bool:
        return False  # one version of an object stays as it is

    def ranges(self, *, may_map: bool) -> Ranges:  # noqa: ARG002 - as of every source
        return self._data

    def settle(self) -> None:
        self._file.forget()


def open_source(path: str) -> Source:
    """Return the file or object at `path`.

    Raises
    ------
    FileNotFoundError
        When there is none.
    UsageError
        For URLs of storages that h5py cannot be made to read.
    """
    return _RemoteSource(path) if is_url(path) else _LocalSource(path)
