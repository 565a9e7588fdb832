"""The chunks of an HDF5 dataset that is read through h5py, as they are stored."""

from __future__ import annotations

import h5py

from voxload.readers.chunked import Fetched
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.decoded import DecodedChunks
from voxload.readers.hdf5.source import Ranges
from voxload.readers.parts import Place
from voxload.readers.stored import StoredChunks, grid_of


def library_chunks(decoded: DecodedChunks, dataset: h5py.Dataset, table: ChunkTable, file: Ranges) -> StoredChunks:
    """Return the chunks of a dataset that is read through h5py; `file` closes when the last of them is gone."""

    def fetch(place: Place) -> Fetched | None:
        file.check_unchanged()
        found = table.find(place)
        return None if found is None else Fetched(file.read(found.offset, found.size), found.mask)

    def decode(_place: Place, fetched: Fetched) -> None:
        decoded.decode(fetched.data, fetched.mask)

    return StoredChunks(grid_of(dataset.shape, dataset.chunks), tuple(dataset.chunks), fetch, decode, str)
