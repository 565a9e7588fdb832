"""ChunkTable: where the chunks of an HDF5 dataset lie, learnt once."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from voxload.errors import DataError
from voxload.files.limits import CHUNK_TABLE
from voxload.geometry import Box, chunks_touched
from voxload.readers.chunks.storedchunks import grid_of
from voxload.readers.hdf5.quirks import are_unfiltered, mark_partial
from voxload.readers.protocol import ReadCost

_ABSENT = -1
_CELLS = 2**20
_CELLS_PER_CHUNK = 2**10
"""A table has a cell for each place of the grid: so many always, and beyond them so many for each chunk stored."""
_CELL_BYTES = 8 + 8 + 4
"""Offset, size and mask of a chunk."""
_CHECK_BYTES = 16
"""What a look at all cells takes beside them, for each."""
_BATCH = 2**14
"""Chunks whose numbers are gathered before they go into the table."""


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

    Parameters
    ----------
    offsets, sizes, masks
        See the properties; arrays over the grid of chunks, which the table makes read-only.
    chunk
        Extent of a chunk in stored axis order.
    itemsize
        Bytes of an element.
    """

    def __init__(
        self,
        offsets: npt.NDArray[np.uint64],
        sizes: npt.NDArray[np.int64],
        masks: npt.NDArray[np.uint32],
        *,
        chunk: tuple[int, ...],
        itemsize: int,
    ) -> None:
        self._offsets, self._sizes, self._masks = offsets, sizes, masks
        for column in (offsets, sizes, masks):
            column.flags.writeable = False
        self._chunk = chunk
        self._itemsize = itemsize
        self._is_complete = not bool((sizes == _ABSENT).any())

    @classmethod
    def read(cls, dataset: h5py.Dataset) -> ChunkTable:
        """Read the table with one pass over the file's index (``H5Dchunk_iter``).

        Asking for the chunks one by one walks the index anew for each and is quadratic.
        """
        subject = f"{os.fsdecode(h5py.h5f.get_name(dataset.id))}:{dataset.name}"
        grid = grid_of(dataset.shape, dataset.chunks)
        # Before the chunks are counted: an index without entries, which HDF5 computes, has as many as are claimed.
        CHUNK_TABLE.check(subject, _CELL_BYTES * prod(grid), "a chunk table")
        _check_cells(subject, prod(grid), dataset.id.get_num_chunks())
        offsets = np.zeros(grid, np.uint64)
        sizes = np.full(grid, _ABSENT, np.int64)
        masks = np.zeros(grid, np.uint32)
        widths = np.array(dataset.chunks, np.uint64)
        # Plain numbers: objects of Python's for every chunk took twenty times the table.
        numbers, length = array("Q"), dataset.ndim + 3

        def flush() -> None:
            rows = np.array(numbers, np.uint64).reshape(-1, length)
            corners = (rows[:, :-3] // widths).astype(np.int64)
            flat = np.ravel_multi_index(tuple(corners.T), grid)  # raises ValueError for a chunk outside the grid
            masks.reshape(-1)[flat], offsets.reshape(-1)[flat], sizes.reshape(-1)[flat] = rows[:, -3:].T
            del numbers[:]

        def note(chunk: Any) -> None:
            numbers.extend(chunk[0])  # its corner
            numbers.extend(chunk[1:])  # mask, offset and size
            if len(numbers) >= _BATCH * length:
                flush()

        dataset.id.chunk_iter(note)
        flush()
        if are_unfiltered(dataset):
            mark_partial(masks, dataset)
        return cls(offsets, sizes, masks, chunk=tuple(dataset.chunks), itemsize=dataset.dtype.itemsize)

    @property
    def offsets(self) -> npt.NDArray[np.uint64]:
        """First byte of each chunk in the file; 0 for one that was never written."""
        return self._offsets

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of each chunk as stored; -1 for one that was never written."""
        return self._sizes

    @property
    def masks(self) -> npt.NDArray[np.uint32]:
        """Filters that each chunk was stored without: bit i stands for filter i of the dataset."""
        return self._masks

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._offsets.nbytes + self._sizes.nbytes + self._masks.nbytes

    def check(self, subject: str, file_size: int) -> None:
        """Refuse a table whose chunks do not all lie in a file of `file_size` bytes; names the first that does not.

        Raises
        ------
        DataError
            When a chunk begins or ends beyond the file.
        """
        written = self._sizes != _ABSENT
        # Two comparisons and no sum: offsets of a damaged file overflow.
        room = np.uint64(file_size) - np.minimum(self._offsets, np.uint64(file_size))
        outside = written & ((self._offsets > np.uint64(file_size)) | (self._sizes.astype(np.uint64) > room))
        if outside.any():
            place = tuple(np.argwhere(outside)[0].tolist())
            raise DataError(
                f"{subject}, chunk {place}",
                found=f"{int(self._sizes[place])} bytes at {int(self._offsets[place])}",
                expected=f"a place in a file of {file_size} bytes",
                remedy="copy or convert the file again: it is cut short or its table of chunks damaged",
            )

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
        if not self._is_complete:
            sizes = sizes[sizes != _ABSENT]
        return ReadCost(sizes.size, int(sizes.sum()), sizes.size * prod(self._chunk) * self._itemsize)

    def first_missing(self, stored: Box) -> tuple[int, ...] | None:
        """Return the grid place of the first chunk of `stored` that was never written, or None."""
        if self._is_complete:
            return None
        touched = chunks_touched(stored, self._chunk)
        places = np.argwhere(self._sizes[touched.slices] == _ABSENT)
        return tuple(int(i) + first for i, first in zip(places[0], touched.start, strict=True)) if len(places) else None


def table_bytes(shape: tuple[int, ...], chunk: tuple[int, ...]) -> int:
    """Return the memory that reading the table of a dataset takes; pure."""
    return prod(grid_of(shape, chunk)) * (_CELL_BYTES + _CHECK_BYTES)


def _check_cells(subject: str, cells: int, stored: int) -> None:
    """Refuse extents that no stored data justify, before memory is taken for them: damaged ones may be any number."""
    if cells > _CELLS + _CELLS_PER_CHUNK * stored:
        raise DataError(
            subject,
            found=f"extents of {cells} chunks, of which {stored} are stored",
            expected="extents of the data",
            remedy="copy or convert it again: its extents are damaged, or were never filled",
        )
