"""One translation of what libraries raise into the error tree."""

from __future__ import annotations

import errno
import itertools
import lzma
import struct
import sys
import tokenize
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from voxload.errors import DataError, NotFoundError, StorageError, VoxloadError
from voxload.geometry import Box, chunks_touched

_STORAGE_ERRNOS = frozenset(
    {
        *(errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.EREMOTEIO),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOLCK),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ENOTCONN, errno.ESHUTDOWN),
    }
)
"""Errors of the storage or the machine, not of the data: the same read may work elsewhere or later.

EAGAIN is what h5py gives for a file that another process holds open for writing.
"""

_DATA_ERRORS = (
    *(ValueError, RuntimeError, KeyError, TypeError, IndexError, ArithmeticError, AttributeError, AssertionError),
    *(EOFError, zlib.error, lzma.LZMAError, struct.error),
    *(SyntaxError, tokenize.TokenError),  # numpy parses the header of an npy file as Python
)
"""What libraries raise at bytes or metadata that are not what they should be."""


def remote_errors() -> tuple[type[Exception], ...]:
    """Return what is raised when a connection fails.

    aiohttp takes longer to import than many a file to read, and raises nothing before somebody has imported it.
    """
    client: Any = sys.modules.get("aiohttp")
    own = getattr(client, "ClientError", None)
    return (ConnectionError, TimeoutError) if own is None else (ConnectionError, TimeoutError, own)


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Turn what a storage library raises while it reads `subject` into NotFoundError, StorageError or DataError.

    Libraries say "these bytes are no chunk" with nearly any builtin: h5py with OSError without errno,
    numcodecs with RuntimeError or ValueError, zarr with KeyError, TypeError or AssertionError for metadata.
    """
    try:
        yield
    except VoxloadError:
        raise
    except FileNotFoundError as error:
        raise NotFoundError(subject, found="no such file", remedy="check the path") from error
    except remote_errors() as error:
        raise storage_error(subject, error) from error
    except OSError as error:
        if error.errno in _STORAGE_ERRNOS:
            raise storage_error(subject, error) from error
        raise _data_error(subject, error) from error
    except _DATA_ERRORS as error:
        raise _data_error(subject, error) from error


@contextmanager
def naming_chunk(subject: str, stored: Box, unit: Sequence[int], read: Callable[[Box], object]) -> Iterator[None]:
    """Translate what a library raises while it reads `stored`, and name the first chunk that is to blame.

    Libraries do not say which chunk they could not read. It is found by reading the chunks of `stored` one by one,
    with `read`, once there is an error. `unit` is the extent of a chunk in stored axis order.
    """
    try:
        yield
    except (OSError, *_DATA_ERRORS) as error:
        if isinstance(error, VoxloadError) or (isinstance(error, OSError) and error.errno in _STORAGE_ERRNOS):
            raise
        place = _first_broken(stored, unit, read)
        with translated(f"{subject}, chunk {place}" if place else subject):
            raise


def _first_broken(stored: Box, unit: Sequence[int], read: Callable[[Box], object]) -> tuple[int, ...] | None:
    touched = chunks_touched(stored, tuple(unit))
    for place in itertools.product(*map(range, touched.start, touched.stop)):
        chunk = Box.whole(tuple(unit)).shift(tuple(i * width for i, width in zip(place, unit, strict=True)))
        part = chunk.intersect(stored)
        try:
            if part is not None:
                read(part)
        except (OSError, *_DATA_ERRORS):
            return place
    return None


def storage_error(subject: str, error: BaseException) -> StorageError:
    """Return the error of a storage that refused a read for a reason of its own."""
    remedy = "the storage refused the read: see the system's log, then try again"
    return StorageError(subject, found=_first_line(error), remedy=remedy)


def _data_error(subject: str, error: Exception) -> DataError:
    remedy = "copy or convert it again: it is damaged or incomplete"
    return DataError(subject, found=_first_line(error), expected="readable data", remedy=remedy)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
