"""FileBytes: ranges of one open file, checked."""

from __future__ import annotations

import mmap
import os
import stat
import weakref
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError
from voxload.readers.direct import open_for_reading, read_range, reads_directly
from voxload.readers.locality import is_node_local
from voxload.readers.readahead import is_cold_byte, is_cold_page
from voxload.readers.scratch import Bytes, address, scratch
from voxload.readers.stamp import Stamp


class FileBytes:
    """A file that stays open; its ranges come as scratch or, where that is safe, as a look into a map.

    All methods may be called from many threads at once, `close` only when no other call runs.

    Parameters
    ----------
    path
        The file.
    may_map
        Whether ranges may be looks into a memory map: only for data that are pasted as they are, and only on
        node-local file systems. On others a failing read of a map ends the process.
    """

    def __init__(self, path: str, *, may_map: bool = False) -> None:
        self.path = path
        self._descriptor = open_for_reading(path)
        # Also closes what nobody closed: a reader that an error left behind keeps no descriptor.
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._map: Bytes | None = None
        self._pages: mmap.mmap | None = None
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DataError(path, found="a folder or device", expected="a file")  # noqa: TRY301 - closes the file
            self._stamp = Stamp.of(path, self._descriptor)
            self.size = self._stamp.size
            self.is_local = is_node_local(path) and not reads_directly()
            if may_map and self.size and self.is_local:
                self._pages = mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ)
                self._map = np.frombuffer(self._pages, np.uint8)
                self._close()  # the map has a descriptor of its own
        except BaseException:
            self.close()
            raise

    @property
    def stamp(self) -> Stamp:
        """The file as it was when it was opened."""
        return self._stamp

    def check_unchanged(self) -> None:
        """Refuse a file that was written to or replaced since it was opened: what is known of it may no longer hold.

        A file that was removed can still be read: its bytes last as long as it is open.
        """
        self._stamp.check_unchanged()

    def read(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset`, valid until this thread reads again.

        Raises DataError when they do not all lie in the file.
        """
        self._check(offset, length)
        if self._map is not None:
            return self._map[offset : offset + length]
        return self._fetch(offset, length, scratch.stored)

    def _check(self, offset: int, length: int) -> None:
        # Two comparisons and no sum: a damaged table may hold numbers that overflow elsewhere.
        if not 0 <= offset <= self.size or not 0 <= length <= self.size - offset:
            raise self._short(offset, length, max(0, self.size - offset))

    def _fetch(self, offset: int, length: int, memory: Callable[[int], Bytes]) -> Bytes:
        data = read_range(self._descriptor, offset, length, memory)
        if data.size < length:
            raise self._short(offset, length, data.size)
        return data

    def fresh(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset` in memory of their own; see `read`."""
        self._check(offset, length)
        return self._fetch(offset, length, lambda size: np.empty(size, np.uint8))

    def is_cold(self, offset: int) -> bool:
        """Tell whether the byte at `offset` is not in memory."""
        if self._map is not None:
            return is_cold_page(address(self._map) + offset)
        return is_cold_byte(self._descriptor, offset)

    def announce(self, offset: int, length: int) -> None:
        """Tell the system that a range will be read."""
        if self._pages is None:
            os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_WILLNEED)
            return
        start = offset - offset % mmap.PAGESIZE
        self._pages.madvise(mmap.MADV_WILLNEED, start, offset + length - start)

    @property
    def map(self) -> Bytes | None:
        """The map of the whole file, or None where its ranges come as scratch."""
        return self._map

    def holds(self, offsets: npt.NDArray[np.uint64], length: int) -> bool:
        """Tell whether ranges of `length` bytes all lie in the file."""
        # A difference and no sum: a damaged table may hold offsets that overflow.
        return length <= self.size and bool((offsets <= np.uint64(self.size - length)).all())

    def close(self) -> None:
        """Close the file; the map goes with the last array that looks into it."""
        self._map, self._pages, self._descriptor = None, None, -1
        self._close()

    def _short(self, offset: int, length: int, found: int) -> DataError:
        return DataError(
            self.path,
            found=f"{found} bytes at {offset}",
            expected=f"{length}: the file is cut short or its table of chunks damaged",
        )
