"""FileBytes: ranges of one open file, checked, through the page cache or past it.

Direct reads: past the page cache, for data that are too large to stay in it. A page that is read once an epoch, of
data larger than memory, only pushes other pages out, and copying it costs the processor what a fast device gives.
Direct reads want offsets, lengths and memory at multiples of the device's blocks; what is read beyond the wanted
bytes is left out.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import weakref
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError, UsageError
from voxload.readers.scratch import Bytes, address, scratch
from voxload.readers.storage.readahead import is_cold_byte, is_cold_page
from voxload.readers.storage.stamp import Stamp, is_on_near_device

_ALIGNMENT = 4096
"""Bytes: the largest logical block of any device in use; what Linux's file systems ask for is this or less."""

_is_direct = False


def set_direct_reads(*, is_direct: bool) -> None:
    """Let files that are opened from now on be read past the page cache, or through it, as is the default.

    For the whole process, and for files, shards and chunks alike; nothing is mapped meanwhile, and many requests are
    under way at once. Opening a file where its file system knows no direct reads raises UsageError.
    """
    global _is_direct  # noqa: PLW0603 - one setting for the process
    _is_direct = is_direct


def reads_directly() -> bool:
    """Tell whether files are read past the page cache."""
    return _is_direct


def open_for_reading(path: str) -> int:
    """Return the descriptor of a file, for direct reads where these are set.

    Raises
    ------
    OSError
        When the file cannot be opened.
    UsageError
        When its file system has no direct reads.
    """
    # Without O_NONBLOCK, opening a pipe would wait for its writer; files do not care.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, flags | (os.O_DIRECT if _is_direct else 0))
    except OSError as error:
        if _is_direct and error.errno == errno.EINVAL:
            remedy = "set_direct_reads(is_direct=False), or keep the data elsewhere"
            raise UsageError(path, found="a file system without direct reads", remedy=remedy) from error
        raise


def read_range(descriptor: int, offset: int, length: int, memory: Callable[[int], Bytes]) -> Bytes:
    """Return the bytes from `offset` on, at most `length`: fewer where the file ends before.

    Parameters
    ----------
    descriptor
        What `open_for_reading` returned.
    offset, length
        Bytes.
    memory
        Gives memory of a number of bytes; more are asked for than wanted where reads are direct.
    """
    if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
        return _filled(descriptor, memory(length), offset)
    start = offset - offset % _ALIGNMENT
    span = -(-(offset + length) // _ALIGNMENT) * _ALIGNMENT - start
    loose = memory(span + _ALIGNMENT)
    pad = -address(loose) % _ALIGNMENT
    # A direct read that ends within a block has met the file's end, and may not go on from there.
    found = _filled(descriptor, loose[pad : pad + span], start, unit=_ALIGNMENT)
    return found[offset - start : offset - start + length]


def _filled(descriptor: int, buffer: Bytes, offset: int, *, unit: int = 1) -> Bytes:
    """Read until `buffer` is full or the file ends; return the part that was filled."""
    done = 0
    while done < buffer.size:
        count = os.preadv(descriptor, [buffer[done:].data], offset + done)
        done += count
        if not count or done % unit:
            break
    return buffer[:done]


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
            self.is_local = is_on_near_device(status.st_dev, path) and not reads_directly()
            if may_map and self.size and self.is_local:
                self._pages = mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ)
                self._map = np.frombuffer(self._pages, np.uint8)
                self._close()  # the map has a descriptor of its own
                self._descriptor = -1
        except BaseException:
            self.close()
            raise

    @property
    def stamp(self) -> Stamp:
        """The file as it was when it was opened."""
        return self._stamp

    @property
    def descriptor(self) -> int:
        """The open file; -1 once it is mapped or closed."""
        return self._descriptor

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
