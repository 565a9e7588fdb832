"""MappedReads: reads of voxels that lie in a map as they are, made again by one call of the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from voxload.core.library import function
from voxload.readers.knownreads import KnownReads, base_of, key_of
from voxload.readers.maderead import MadeRead, PlainFile
from voxload.readers.pasting.kernels import FIRST, STOP, TARGET, Table
from voxload.readers.pasting.pasteplan import ChunkShape, Wanted, plan_parts
from voxload.readers.pasting.paster import kinds_of
from voxload.readers.requests import Request
from voxload.readers.scratch import Bytes, address, path_of
from voxload.readers.storage.stamp import Stamp

_copy_again = function("copy_again", "pppnnnbii", "b")
_MOST_BYTES = 2**22
"""Larger reads are shared out among threads, and take so long that their plan does not matter."""


@dataclass(frozen=True, slots=True)
class _Known:
    rows: Table
    """Of arrays that begin at address 0."""
    at: int
    """Address of `rows`."""
    unit: int
    """Bytes that the array's address must be a multiple of."""
    types: tuple[int, int]
    """Stored type and what it is cast to, as the core numbers them; -1 for both where nothing is cast."""


class MappedReads:
    """Makes reads of an array in a mapped file again; safe to use from many threads at once.

    Parameters
    ----------
    shape
        How the elements lie; its extents are those of the whole array.
    data
        The elements, in the map.
    stamp
        The file as it was when it was mapped.
    offset
        Where in the file the elements begin.
    """

    def __init__(self, shape: ChunkShape, data: Bytes, stamp: Stamp, *, offset: int) -> None:
        self._shape, self._data, self._offset = shape, data, offset
        self._file = stamp
        self._stamp = stamp.numbers()
        self._path = path_of(stamp.path)
        self._addresses = address(self._stamp), address(self._path)
        self._known: KnownReads[_Known] = KnownReads()

    def remember(self, requests: Sequence[Request], wanted: Sequence[Wanted]) -> None:
        """Remember a read, of which `wanted` are the boxes and arrays in stored axis order."""
        if sum(one.view.nbytes for one in wanted) > _MOST_BYTES:
            return
        base = address(requests[0].out)
        key = key_of(requests, base)
        if not self._known.comes_again(key):
            return
        rows = self._rows(wanted, address(self._data), base)
        target: np.dtype[Any] = wanted[0].view.dtype
        self._known.add(key, _Known(rows, address(rows), target.itemsize, kinds_of(self._shape.dtype, target)))

    def made(self, wanted: Sequence[Wanted], base: int) -> MadeRead | None:
        """Return a read that was just made, for the core to make without the map; see Repeatable."""
        if sum(one.view.nbytes for one in wanted) > _MOST_BYTES or not self._file.is_settled:
            return None
        rows = self._rows(wanted, self._offset, base)
        target: np.dtype[Any] = wanted[0].view.dtype
        width, is_swapped = self._shape.itemsize, self._shape.is_swapped
        types = kinds_of(self._shape.dtype, target)
        file = PlainFile(self._file.path, self._file, width=width, is_swapped=is_swapped, types=types)
        return MadeRead.of_plain(file, rows, unit=target.itemsize)

    def _rows(self, wanted: Sequence[Wanted], origin: int, base: int) -> Table:
        """Return the plan of a read of elements that begin at `origin`, into arrays as if their base were address 0."""
        rows = plan_parts(self._shape, wanted).table
        rows[:, FIRST] += np.uint64(origin)
        rows[:, STOP] += np.uint64(origin)
        rows[:, TARGET] -= np.uint64(base)
        return rows

    def read_again(self, requests: Sequence[Request]) -> bool:
        """Fill the arrays of a read that was made before, or such arrays; False where it is to be made as if new.

        What was checked then holds as long as the file is what it was, which is looked at.
        """
        base = base_of(requests)
        if base is None:
            return False
        known = self._known.find(key_of(requests, base))
        if known is None or base % known.unit:
            return False
        stamp, path = self._addresses
        shape = self._shape
        is_swapped = shape.is_swapped and shape.itemsize > 1
        # Cold pages are announced by the long way: not dropped, for they are warm the next time.
        return bool(_copy_again(stamp, path, known.at, len(known.rows), base, shape.itemsize, is_swapped, *known.types))
