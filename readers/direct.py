"""Direct reads: past the page cache, for data that are too large to stay in it.

A page that is read once an epoch, of data larger than memory, only pushes other pages out, and copying it costs the
processor what a fast device gives. Direct reads want offsets, lengths and memory at multiples of the device's blocks;
what is read beyond the wanted bytes is left out.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

from voxload.errors import UsageError
from voxload.readers.scratch import Bytes, address

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
