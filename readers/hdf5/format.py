"""Hdf5Format: how an HDF5 file is recognised, listed and opened."""

from __future__ import annotations

import os
from typing import Any

import h5py

from voxload.errors import DataError, NotFoundError
from voxload.readers.chunks.verified import VerifiedReader, load_checksums, policy_of
from voxload.readers.faults import translated
from voxload.readers.hdf5.checks import check_supported
from voxload.readers.hdf5.decoded import read_whole
from voxload.readers.hdf5.file import (
    SIGNATURE,
    check_own_file,
    find_superblock,
    has_more,
    read_attribute,
    superblock_places,
    volume_names,
)
from voxload.readers.hdf5.metadata import LazyMetadata, LoadedMetadata, metadata_cache
from voxload.readers.hdf5.native import NativeHdf5Reader
from voxload.readers.hdf5.reader import Hdf5Reader
from voxload.readers.hdf5.route import find_route
from voxload.readers.hdf5.source import open_source
from voxload.readers.protocol import Location, Missing, Reader, Vector, as_vector
from voxload.readers.remote import RemoteStore
from voxload.readers.store import is_url
from voxload.text import listed

_HEAD_BYTES = 2**16
"""Looked at first of a URL: user blocks are shorter, and a request takes no longer for it than for 8 bytes."""


class Hdf5Format:
    """HDF5 of any version, with or without a user block."""

    name = "HDF5"

    def claims(self, path: str) -> bool:
        """Tell whether there is a superblock; of a URL, by one request, and some more where there is none."""
        if is_url(path):
            return _has_superblock(RemoteStore(path))
        return os.path.isfile(path) and find_superblock(path) is not None  # noqa: PTH113 - a Path takes longer

    def datasets(self, path: str) -> tuple[str, ...]:
        """Return the names of all datasets of three or four axes."""
        with translated(path), open_source(path).open() as file:
            return tuple(sorted(volume_names(file)))

    def holds(self, path: str, name: str) -> bool:
        """Tell whether there is such a volume, without a look at the others."""
        with translated(path), open_source(path).open() as file:
            item = file.get(name)
            return isinstance(item, h5py.Dataset) and item.ndim in (3, 4)

    def is_crowded(self, path: str, most: int) -> bool:
        """Tell whether a file holds more than `most` objects, by a look at so many."""
        with translated(path), open_source(path).open() as file:
            return has_more(file, most)

    def open(self, location: Location, missing: Missing) -> Reader:
        """Open one dataset, natively where its storage allows; without a name, the only one there is."""
        missing = policy_of(location, missing)
        with translated(location.path):
            source = open_source(location.path)
            learnt = metadata_cache().find(location, source.stamp)
            if learnt is not None and not source.may_be_written():
                return NativeHdf5Reader(source, missing, LoadedMetadata(learnt))
        reader = Hdf5Reader(location, missing, source=source)
        try:
            with translated(str(location)):
                is_written = source.is_open_for_writing()
                route = "the file is open for writing" if is_written else find_route(reader.dataset, reader.pipeline)
                if isinstance(route, str):
                    reader.routed(f"h5py: {route}")
                    checksums = load_checksums(location, reader.grid)
                    return VerifiedReader(reader, checksums) if checksums else reader
                return NativeHdf5Reader(source, missing, LazyMetadata(reader, route))
        except BaseException:
            reader.close()
            raise

    def read_vector(self, path: str, name: str) -> Vector:
        """Read a scalar or one-dimensional dataset."""
        with translated(path), open_source(path).open() as file:
            item = file.get(name)
            if isinstance(item, h5py.Dataset):
                check_own_file(item, file, f"{path}:{name}")
                check_supported(item, Location(path, name))
                subject = f"{path}:{name}"
                is_vector = item.ndim < 2 and item.dtype.kind in "biuf"
                return as_vector(subject, read_whole(item, subject) if is_vector else item)
            raise NotFoundError(path, found=f"no dataset {name!r}", expected=f"one of {listed(sorted(file))}")

    def read_attribute(self, path: str, node: str, name: str) -> Any:
        """Read an attribute of a file, its groups or datasets; see `voxload.readers.attributes`."""
        with translated(path), open_source(path).open() as file:
            return read_attribute(file, path, node=node, name=name)


def _has_superblock(store: RemoteStore) -> bool:
    """Tell whether the object of a URL is an HDF5 file; it may be none, or no object at all."""
    try:
        head = store.edge("", _HEAD_BYTES, at_end=False)
    except DataError:  # a folder, or an empty object
        return False
    if head is None:
        return False
    places = superblock_places(head.size)
    width = len(SIGNATURE)
    near = [place for place in places if place + width <= head.data.size]
    if any(head.data[place : place + width].tobytes() == SIGNATURE for place in near):
        return True
    beyond = places[len(near) :]
    return SIGNATURE in store.map(lambda place: store.read("", place, width), beyond)
