"""Page cache: what of files the system holds in memory, and how to make it forget or hold them."""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
from collections.abc import Iterable

import numpy as np

from voxload.errors import NotFoundError, StorageError
from voxload.readers.storage.locality import mount_of

_PAGED = frozenset(
    {"bcachefs", "btrfs", "ecryptfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "overlay", "squashfs", "vfat", "xfs"}
)
"""Kinds that keep data in the page cache of this node and nowhere else."""
_APART = frozenset({"gpfs", "mmfs", "zfs"})
"""Kinds that keep data in memory of this node outside the page cache."""
_MEMORY = frozenset({"ramfs", "tmpfs"})
"""Kinds whose files live in memory."""


def file_system(path: str | os.PathLike[str]) -> str:
    """Return the kind of file system, such as ``ext4`` or ``lustre``; empty where the system does not say."""
    return mount_of(path).kind


def keeps_apart(kind: str) -> bool:
    """Tell whether such a file system keeps data in memory that emptying the page cache leaves alone."""
    return kind in _APART


def cache_note(kind: str) -> str:
    """Return what a reader must know about caches of such a file system; empty for nothing."""
    if kind in _APART:
        return f"{kind} keeps a cache of its own in memory, which was neither emptied nor looked at"
    if kind in _MEMORY:
        return f"{kind} keeps its files in memory, so that no storage is measured"
    if kind in _PAGED:
        return ""
    return f"caches behind {kind or 'this file system'}, of a host or of servers, are out of reach"


Path = str | os.PathLike[str]
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_libc.syscall.restype = ctypes.c_long
_CACHESTAT = 451
"""Number of cachestat(2), the same on all processors; Linux 6.5 has it."""
_WINDOW = 1 << 34
"""Bytes that are mapped at once; a multiple of every page size."""
_PIECE = 1 << 24
"""Bytes that are read at once."""


def resident_share(files: Iterable[Path]) -> float:
    """Return the share of all pages of `files` that are in memory, from 0 to 1; NaN where the system does not say.

    NaN also where there is no page at all. The system tells it (mincore(2)) about files that this process owns or may
    write; about others since Linux 6.5 (cachestat(2)), where it still does. Reads nothing into memory.

    Raises
    ------
    NotFoundError
        When a file is not there.
    StorageError
        When it cannot be opened.
    """
    held = pages = 0
    for file in files:
        descriptor = _opened(file)
        try:
            status = os.fstat(descriptor)
            if status.st_size:
                found = _held(file, descriptor, status)
                if found is None:
                    return math.nan
                held += found
                pages += -(-status.st_size // mmap.PAGESIZE)
        finally:
            os.close(descriptor)
    return held / pages if pages else math.nan


def evict(files: Iterable[Path]) -> None:
    """Ask the system to drop the pages of `files`, written to storage first: a page that is not would stay.

    Needs no rights. Pages that a process has mapped or locked stay, too. Raises as `resident_share` does.
    """
    for file in files:
        descriptor = _opened(file)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise _failure(file, error) from error
        finally:
            os.close(descriptor)


def warm(files: Iterable[Path]) -> None:
    """Read every byte of `files` once: the system then holds their pages, where memory has room.

    Raises as `resident_share` does.
    """
    buffer = bytearray(_PIECE)
    for file in files:
        with os.fdopen(_opened(file), "rb", buffering=0) as stream:
            try:
                while stream.readinto(buffer):
                    pass
            except OSError as error:
                raise _failure(file, error) from error


def _held(file: Path, descriptor: int, status: os.stat_result) -> int | None:
    """Return how many pages of an open file are in memory; None where the system does not say."""
    if _may_ask(file, status):
        return sum(
            _mapped_held(file, descriptor, start, min(_WINDOW, status.st_size - start))
            for start in range(0, status.st_size, _WINDOW)
        )
    return _counted_held(file, descriptor)


def _may_ask(file: Path, status: os.stat_result) -> bool:
    """Tell whether mincore(2) says the truth; of other people's files it says that every page is in memory."""
    return os.geteuid() in (0, status.st_uid) or os.access(file, os.W_OK, effective_ids=True)


def _mapped_held(file: Path, descriptor: int, start: int, length: int) -> int:
    flags = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
    with mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=start) as view:
        address = np.frombuffer(view, np.uint8).ctypes.data
        if _libc.mincore(address, length, flags.ctypes.data):
            raise _failure(file, OSError(ctypes.get_errno(), "mincore"))
    return int(np.count_nonzero(flags & 1))


def _counted_held(file: Path, descriptor: int) -> int | None:
    """Ask cachestat(2), which looks at the file itself; overlay's files are empty shells of those below."""
    if file_system(file) in ("overlay", ""):
        return None
    span, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if _libc.syscall(_CACHESTAT, descriptor, span, found, 0):
        return None  # an older system, or one that tells only owners
    return int(found[0])


def _opened(file: Path) -> int:
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _failure(file, error) from error


def _failure(file: Path, error: OSError) -> NotFoundError | StorageError:
    if error.errno == errno.ENOENT:
        return NotFoundError(os.fspath(file), found="no such file", remedy="see that the data set is complete")
    return StorageError(os.fspath(file), found=error.strerror or str(error), remedy="see that it can be read")
