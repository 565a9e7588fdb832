"""Hdf5Storage: one chunked HDF5 file a volume, written through a file that outlives a full disk.

Hdf5Storage: one chunked HDF5 file a volume. An HDF5 file that was killed while it grew may be beyond repair. So
encoded chunks are spooled to a plain file that can be taken up again, and only when all are there the HDF5 file is
made of them, without encoding anything anew.

TrappedFile: a file whose first failed write is kept for the caller instead of passed on. libhdf5 does not survive a
full disk: metadata that cannot be flushed stay in its cache, the file cannot be closed, and the process may crash
later, when the handle is collected (seen with HDF5 2.0). So HDF5 is given this file. From the first failure on it
accepts every write and drops it, HDF5 closes in peace, and the caller asks for the failure after each step and throws
the file away.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from voxload.convert.manifest import ATTRIBUTE, AXES, Manifest
from voxload.convert.storage.compression import Compression, Hdf5Encoder
from voxload.convert.storage.protocol import Place, StoredChunk

TARGETS = "targets"
"""Name of the dataset that holds the targets of a file of one sample; its attribute ``names`` says which is which."""
_SPOOL, _VOLUME = "chunks", "volume.h5"


@dataclass(frozen=True, slots=True)
class Hdf5Storage:
    """A chunked dataset, of whose chunks each has a Fletcher-32 checksum."""

    manifest: Manifest
    """What is written."""

    @property
    def encoder(self) -> Hdf5Encoder:
        """What makes a chunk's bytes."""
        return Hdf5Encoder(Compression(self.manifest.compression), np.dtype(self.manifest.dtype))

    def create(self, folder: Path) -> None:
        """Make the folder of the spool."""
        folder.mkdir()

    def file_of(self, place: Place) -> int:  # noqa: ARG002 - the contract's signature
        """Return 0: all chunks share a file."""
        return 0

    def file_name(self, number: int) -> str:  # noqa: ARG002 - the contract's signature
        """Return the spool's name."""
        return _SPOOL

    def finish(self, folder: Path, chunks: Mapping[Place, StoredChunk], manifest: Manifest) -> Path:
        """Copy the spooled chunks into a new HDF5 file."""
        path = folder / _VOLUME
        with DeferredErrorFile(path) as sink, (folder / _SPOOL).open("rb") as spool:
            with h5py.File(sink, "w") as file:
                dataset = self._dataset(file)
                for place, chunk in chunks.items():
                    data = os.pread(spool.fileno(), chunk.length, chunk.offset)
                    start = tuple(index * width for index, width in zip(place, manifest.chunks, strict=True))
                    dataset.id.write_direct_chunk(start, data)
                    sink.check()
                _describe(file, manifest)
            sink.check()
        return path

    def size(self, folder: Path, chunks: Mapping[Place, StoredChunk]) -> int:  # noqa: ARG002 - the contract's signature
        """Return the bytes of all chunks."""
        return sum(chunk.length for chunk in chunks.values())

    def _dataset(self, file: h5py.File) -> Any:
        dataset = file.create_dataset(
            self.manifest.dataset,
            shape=self.manifest.shape,
            dtype=np.dtype(self.manifest.dtype),
            chunks=self.manifest.chunks,
            **self.encoder.filters,
        )
        for dimension, name in zip(dataset.dims, AXES.lower(), strict=True):
            dimension.label = name
        return dataset


def _describe(file: h5py.File, manifest: Manifest) -> None:
    """Store the manifest, in a dataset because an attribute holds 64 KiB at most, and a sole sample's targets."""
    file[ATTRIBUTE] = json.dumps(manifest.to_json())
    targets = manifest.members[0].targets if len(manifest.members) == 1 else {}
    if targets:
        stored = file.create_dataset(TARGETS, data=np.array(list(targets.values()), dtype="<f8"))
        stored.attrs["names"] = list(targets)


class DeferredErrorFile(io.RawIOBase):
    """A new file for reading and writing; one thread at a time.

    Parameters
    ----------
    path
        The file; what was there is emptied.

    Raises
    ------
    OSError
        When the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("w+b", buffering=0)
        self._failure: OSError | None = None

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self._failure is not None:
            raise OSError(self._failure.errno, os.strerror(self._failure.errno or 0)) from self._failure

    def write(self, content: Any) -> int:
        """Write all of `content`, or nothing more after a failure."""
        view = memoryview(content).cast("B")
        position = 0
        while self._failure is None and position < len(view):
            try:
                position += self._file.write(view[position:]) or 0
            except OSError as error:
                self._failure = error
        return len(view)

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is; what was dropped after a failure reads as zeros."""
        view = memoryview(buffer).cast("B")
        count = self._file.readinto(view) or 0
        if self._failure is not None:
            view[count:] = bytes(len(view) - count)
            return len(view)
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def truncate(self, size: int | None = None, /) -> int:
        """Set the length, unless there was a failure."""
        if self._failure is None:
            try:
                return self._file.truncate(size)
            except OSError as error:
                self._failure = error
        return size or 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
