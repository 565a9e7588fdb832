"""The chunks of an HDF5 dataset as they are stored, whatever their filters."""

from __future__ import annotations

import h5py

from voxload.geometry import Box
from voxload.readers.chunked import Fetched
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.source import Ranges
from voxload.readers.parts import Place
from voxload.readers.stored import StoredChunks, grid_of


def library_chunks(dataset: h5py.Dataset, table: ChunkTable, file: Ranges) -> StoredChunks:
    """Return the chunks of a dataset that only libhdf5 can decode; `file` closes when the last of them is gone."""

    def fetch(place: Place) -> Fetched | None:
        file.check_unchanged()
        found = table.find(place)
        return None if found is None else Fetched(file.read(found.offset, found.size), found.mask)

    def decode(place: Place, _fetched: Fetched) -> None:
        corner = tuple(index * width for index, width in zip(place, dataset.chunks, strict=True))
        within = Box.whole(dataset.chunks).shift(corner).intersect(Box.whole(dataset.shape))
        if within is not None:
            dataset[within.slices]

    return StoredChunks(grid_of(dataset.shape, dataset.chunks), tuple(dataset.chunks), fetch, decode, str)
