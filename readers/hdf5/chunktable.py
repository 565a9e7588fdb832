"""ChunkTable: where the chunks of an HDF5 dataset lie, learnt once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from voxload.geometry import Box, chunks_touched
from voxload.readers.protocol import ReadCost

_ABSENT = -1


@dataclass(frozen=True, slots=True)
class StoredAt:
    """Where one chunk lies in the file."""

    offset: int
    """First byte."""
    size: int
    """Bytes as stored."""
    mask: int
    """Bit i tells that filter i of the dataset was left out for this chunk."""


class ChunkTable:
    """Place and size of every chunk of a chunked dataset, in stored axis order; immutable after construction.

    The table is read with one pass over the file's index (``H5Dchunk_iter``): asking for the chunks one by one
    walks the index anew for each and is quadratic.
    """

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._chunk: tuple[int, ...] = dataset.chunks
        self._itemsize: int = dataset.dtype.itemsize
        grid = tuple(-(-extent // width) for extent, width in zip(dataset.shape, self._chunk, strict=True))
        sizes = np.full(grid, _ABSENT, dtype=np.int64)
        offsets = np.zeros(grid, dtype=np.uint64)
        masks = np.zeros(grid, dtype=np.uint32)

        def note(chunk: Any) -> None:
            place = tuple(start // width for start, width in zip(chunk.chunk_offset, self._chunk, strict=True))
            sizes[place], offsets[place], masks[place] = chunk.size, chunk.byte_offset, chunk.filter_mask

        dataset.id.chunk_iter(note)
        self._sizes, self._offsets, self._masks = sizes, offsets, masks
        self._is_complete = not bool((sizes == _ABSENT).any())

    def find(self, place: tuple[int, ...]) -> StoredAt | None:
        """Return where the chunk at `place` of the grid lies; None when it was never written."""
        size = int(self._sizes[place])
        return None if size == _ABSENT else StoredAt(int(self._offsets[place]), size, int(self._masks[place]))

    def look_up(self, places: Sequence[tuple[int, ...]]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return offset and size of each chunk at once; the size of one that was never written is negative."""
        index = tuple(np.array(places, np.intp).T)
        return self._offsets[index], self._sizes[index]

    def cost(self, stored: Box) -> ReadCost:
        """Return what the chunks that hold `stored` cost; chunks never written cost nothing."""
        sizes = self._sizes[chunks_touched(stored, self._chunk).slices]
        count = int(np.count_nonzero(sizes != _ABSENT))
        decoded = count * int(np.prod(self._chunk)) * self._itemsize
        return ReadCost(count, int(sizes[sizes != _ABSENT].sum()), decoded)

    def first_missing(self, stored: Box) -> tuple[int, ...] | None:
        """Return the grid place of the first chunk of `stored` that was never written, or None."""
        if self._is_complete:
            return None
        touched = chunks_touched(stored, self._chunk)
        places = np.argwhere(self._sizes[touched.slices] == _ABSENT)
        return tuple(int(i) + first for i, first in zip(places[0], touched.start, strict=True)) if len(places) else None
