"""One translation of what libraries raise into the error tree."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from voxload.errors import DataError, NotFoundError, StorageError, VoxloadError

_STORAGE_ERRNOS = frozenset(
    {errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""Errors of the storage or the machine, not of the data: the same read may work elsewhere or later."""


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Turn what a storage library raises while it reads `subject` into NotFoundError, StorageError or DataError.

    Libraries say "these bytes are no chunk" with nearly any builtin: h5py with OSError without errno,
    numcodecs with RuntimeError or ValueError, zarr with KeyError or TypeError for metadata.
    """
    try:
        yield
    except VoxloadError:
        raise
    except FileNotFoundError as error:
        raise NotFoundError(subject, found="no such file", remedy="check the path") from error
    except OSError as error:
        if error.errno in _STORAGE_ERRNOS:
            remedy = "the storage refused the read; see the system's log"
            raise StorageError(subject, found=_first_line(error), remedy=remedy) from error
        raise _data_error(subject, error) from error
    except (ValueError, RuntimeError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise _data_error(subject, error) from error


def _data_error(subject: str, error: Exception) -> DataError:
    remedy = "the file is damaged or incomplete: copy or convert it again"
    return DataError(subject, found=_first_line(error), expected="readable data", remedy=remedy)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
