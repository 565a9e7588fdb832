"""HDF5 files that are one of several: those of libhdf5's family and split drivers, named for what they are.

Only a driver that knows of the others reads them. Opened by itself the first of them looks cut short, and none of the
others has a signature.

Source: HDF5 File Format Specification 3.0, section II.B (driver info block), and libhdf5's names of its drivers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

from voxload.errors import UsageError
from voxload.regular import open_regular

_FAMILY, _MULTI = b"NCSAfami", b"NCSAmult"
"""Names by which the superblock, or its extension, says which driver wrote the file."""
_HEAD_BYTES = 2**12
"""Bytes behind the superblock in which libhdf5 puts driver info, of any version, when it makes a file."""
_NUMBER = re.compile(r"\d+")


def driver_error(path: str, file: BinaryIO, superblock: int) -> UsageError | None:
    """Return the error of a file that a family or split driver wrote; None of any other.

    Parameters
    ----------
    path
        For the message.
    file
        The file, open.
    superblock
        Where its superblock begins.
    """
    file.seek(superblock)
    head = file.read(_HEAD_BYTES)
    if _FAMILY in head:
        return _family(path)
    return _split(path) if _MULTI in head else None


def member_error(path: str) -> UsageError | None:
    """Return the error of a file without a signature that belongs to a family or split file beside it; else None."""
    place = Path(path)
    numbers = list(_NUMBER.finditer(place.name))
    for found in reversed(numbers):
        first = place.name[: found.start()] + "0" * len(found[0]) + place.name[found.end() :]
        if first != place.name and _FAMILY in _head(place.with_name(first)):
            return _family(path)
    if place.stem.endswith("-r") and _MULTI in _head(place.with_name(f"{place.stem[:-1]}m{place.suffix}")):
        return _split(path)
    return None


def _head(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_HEAD_BYTES) if os.fstat(file.fileno()).st_size else b""
    except (OSError, UsageError):
        return b""


def _family(path: str) -> UsageError:
    return UsageError(
        path,
        found="one of the files of an HDF5 family, which libhdf5's family driver wrote in pieces",
        expected="one HDF5 file",
        remedy="join them with h5repart, as h5repart -family_to_sec2 NAME%05d.h5 WHOLE.h5",
    )


def _split(path: str) -> UsageError:
    return UsageError(
        path,
        found="one half of a split HDF5 file: libhdf5's split driver puts metadata into -m and voxels into -r",
        expected="one HDF5 file",
        remedy='open it with h5py.File(NAME, driver="split") and copy its datasets into a file of their own',
    )
