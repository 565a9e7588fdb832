"""The chunks of a Zarr array as they are stored, whatever their codecs and wherever they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

from voxload.geometry import Box
from voxload.readers.chunked import Fetched
from voxload.readers.parts import Place
from voxload.readers.stored import StoredChunks, grid_of
from voxload.readers.zarr.chunkindex import ChunkIndex
from voxload.readers.zarr.headers import ChunkHeaders
from voxload.readers.zarr.hierarchy import values


def library_chunks(array: zarr.Array[Any], index: ChunkIndex, headers: ChunkHeaders) -> StoredChunks:
    """Return the chunks of an array that only zarr-python can decode; inner ones where it is sharded.

    `index` remembers sizes and the indices of shards: a fresh one sees the chunks as they are now.
    """
    unit, shape = index.layout.unit, tuple(array.shape)

    def fetch(place: Place) -> Fetched | None:
        data = index.read(place)
        return None if data is None else Fetched(np.frombuffer(data, np.uint8))

    def decode(place: Place, fetched: Fetched) -> None:
        headers.check_chunk(place, fetched.data.data, len(fetched.data))
        corner = tuple(i * width for i, width in zip(place, unit, strict=True))
        within = Box.whole(unit).shift(corner).intersect(Box.whole(shape))
        if within is not None:
            values(array, within.slices)

    return StoredChunks(grid_of(shape, unit), unit, fetch, decode, index.name)
