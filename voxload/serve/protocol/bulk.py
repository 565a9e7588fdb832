"""Bulk: what is too long for a packet, in memory that goes by its descriptor.

It is copied out, never mapped: who gave it may write to it, or cut it short, at any time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence

from voxload.errors import DataError, StorageError

MOST = 2**28
"""Bytes of one; as many as a table of a million blocks takes, or an order of thirty million uses."""


def lent(name: str, data: bytes) -> int:
    """Return the descriptor of new memory that holds `data`, for `send`, and to be closed then."""
    try:
        descriptor = os.memfd_create(f"voxload-{name}", os.MFD_CLOEXEC)
    except OSError as error:
        raise StorageError(name, found=os.strerror(error.errno or 0), expected="memfd_create") from error
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        os.close(descriptor)
        raise StorageError(
            name, found=os.strerror(error.errno or 0), expected=f"{len(data)} bytes of memory"
        ) from error
    return descriptor


def taken(name: str, descriptor: int, *, most: int = MOST) -> bytes:
    """Return what a descriptor holds, which stays open; raises DataError where that is too much, or no memory."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)  # which only memory has: a file may be on a mount that hangs
        size = os.fstat(descriptor).st_size
        if size > most:
            raise DataError(name, found=f"{size} bytes", expected=f"at most {most}")
        parts, place = [], 0
        while place < size and (part := os.pread(descriptor, size - place, place)):
            parts.append(part)
            place += len(part)
    except OSError as error:
        raise DataError(name, found=os.strerror(error.errno or 0), expected="memory") from error
    if place < size:
        raise DataError(name, found=f"{place} bytes", expected=f"{size}")
    return b"".join(parts)


def only(descriptors: Sequence[int]) -> int:
    """Return the one descriptor that came; raises DataError where there are others."""
    if len(descriptors) != 1:
        raise DataError("message", found=f"{len(descriptors)} descriptors", expected="one")
    return descriptors[0]
