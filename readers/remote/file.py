"""RemoteFile: an object behind a URL as a file of Python's, for libraries that read their metadata from one."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from voxload.errors import UsageError
from voxload.readers.remote.coalesce import REQUEST_BYTES
from voxload.readers.remote.ranges import HEAD_BYTES, RemoteBytes
from voxload.readers.scratch import Bytes

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK_BYTES = HEAD_BYTES
"""Fetched at least, and kept."""
KEPT_BYTES = 2**25
"""Blocks kept, the last used ones: two of the longest requests. Indices are walked once, in the order in which they
were written, and libraries keep what they have parsed themselves."""
_LONGEST = REQUEST_BYTES // BLOCK_BYTES
"""Blocks of one request."""


class RemoteFile(io.RawIOBase):
    """Reads an object in blocks; for one thread at a time.

    All work is done in the calling thread. h5py reads files under its lock, which every thread needs that collects a
    garbage object of h5py's: a request that waited for a thread of Python's would wait for ever, were that the one.

    Parameters
    ----------
    data
        The object.
    head
        Its first block.

    Raises
    ------
    UsageError
        When its storage's own client works with threads.
    """

    def __init__(self, data: RemoteBytes, head: Bytes) -> None:
        if data.store.needs_threads:
            raise UsageError(
                data.path,
                found="a client that works with threads, on which libraries such as h5py can wait for ever",
                expected="s3, gs, az, http(s), or one of fsspec's file, memory and ftp",
                remedy="copy the file to such a storage or to a disk, or convert it to Zarr",
            )
        self._data = data
        self._at = 0
        self._blocks: OrderedDict[int, Bytes] = OrderedDict({0: head})
        self._next = 1
        self._length = 1

    def __repr__(self) -> str:
        """Return the URL: h5py takes it for the file's name."""
        return self._data.path

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the place of the next read; return it."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._data.size}[whence]
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill `buffer` from the current place on, or as far as the object goes; return the number of bytes."""
        out = np.frombuffer(memoryview(buffer).cast("B"), np.uint8)
        start, stop = self._at, max(self._at, min(self._at + out.size, self._data.size))
        # By as many blocks as are kept for sure until they are copied.
        for first in range(start - start % BLOCK_BYTES, stop, _LONGEST * BLOCK_BYTES):
            last = min(first + _LONGEST * BLOCK_BYTES, stop)
            for number, block in self._blocks_of(max(first, start), last):
                at = number * BLOCK_BYTES
                part = block[max(0, start - at) : stop - at]
                place = max(start, at) - start
                out[place : place + part.size] = part
        self._at = stop
        return stop - start

    def forget(self) -> None:
        """Let go of all blocks; they are fetched again where they are wanted again."""
        self._blocks.clear()

    def _blocks_of(self, start: int, stop: int) -> list[tuple[int, Bytes]]:
        """Return the blocks that hold a range, of which those that lie together come by one request."""
        numbers = range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES))
        for number in numbers:
            if number in self._blocks:
                self._blocks.move_to_end(number)  # so that what comes does not push it out
        absent = [number for number in numbers if number not in self._blocks]
        while absent:
            count = next((i for i, number in enumerate(absent) if number != absent[0] + i), len(absent))
            self._fetch(absent[0], count)
            absent = [number for number in absent[count:] if number not in self._blocks]
        return [(number, self._blocks[number]) for number in numbers]

    def _fetch(self, first: int, count: int) -> None:
        """Fetch blocks by one request; twice as many as the last time where they follow on those."""
        self._length = min(2 * self._length, _LONGEST) if first == self._next else 1
        start = first * BLOCK_BYTES
        stop = min(start + max(count, self._length) * BLOCK_BYTES, self._data.size)
        data = self._data.fresh(start, stop - start)
        for at in range(0, data.size, BLOCK_BYTES):
            # Copied, as a look into the answer would keep all of it.
            self._blocks[first + at // BLOCK_BYTES] = data[at : at + BLOCK_BYTES].copy()
        self._next = first + -(-data.size // BLOCK_BYTES)
        while len(self._blocks) * BLOCK_BYTES > KEPT_BYTES:
            self._blocks.popitem(last=False)
