"""Foreign files: formats that are known by name and not read, named so that nobody takes one for damaged.

HDF5 files that are one of several: those of libhdf5's family and split drivers, named for what they are. Only a
driver that knows of the others reads them. Opened by itself the first of them looks cut short, and none of the others
has a signature.

Source: HDF5 File Format Specification 3.0, section II.B (driver info block), and libhdf5's names of its drivers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from voxload.errors import UsageError
from voxload.files.regular import open_regular
from voxload.readers.faults import translated
from voxload.readers.protocol import Location
from voxload.readers.store import is_url, open_store

_HEAD_BYTES = 4
_NETCDF3 = {b"CDF\x01": "classic", b"CDF\x02": "64-bit offset", b"CDF\x05": "64-bit data"}
"""Signatures of netCDF-3 and what its variants are called. Source: NetCDF file format specifications, Unidata."""


def foreign_error(path: str) -> UsageError | None:
    """Return the error of a file or object whose format is known here and not read; None of any other path."""
    if not is_url(path) and not Path(path).is_file():
        return None
    with translated(path):
        store = open_store(path)
        # Of an object without bytes no range can be asked for.
        head = store.edge("", _HEAD_BYTES, at_end=False) if store.size("") else None
    variant = None if head is None else _NETCDF3.get(head.data.tobytes())
    if variant is None:
        return None
    place = PurePosixPath(path)
    return UsageError(
        path,
        found=f"a netCDF-3 file ({variant})",
        expected="netCDF-4, which is HDF5",
        remedy=f"copy it with nccopy -k nc4 {place.name} {place.stem}.nc4, and read that",
    )


_ZIP, _NPZ_SUFFIX = b"PK\x03\x04", ".npz"


def npz_error(path: str) -> UsageError | None:
    """Return the error of an archive of numpy, which a conversion reads and no data set; None of any other file."""
    if Path(path).suffix != _NPZ_SUFFIX or not _head(Path(path)).startswith(_ZIP):
        return None
    return UsageError(
        path,
        found="an npz archive, whose arrays cannot be read in parts",
        expected="npy, HDF5 or Zarr",
        remedy="convert it with voxload convert, or save each array with numpy.save",
    )


_FAMILY, _MULTI = b"NCSAfami", b"NCSAmult"
"""Names by which the superblock, or its extension, says which driver wrote the file."""
_DRIVER_BYTES = 2**12
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
    head = file.read(_DRIVER_BYTES)
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
            return file.read(_DRIVER_BYTES) if os.fstat(file.fileno()).st_size else b""
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


def not_multiscale(location: Location) -> UsageError:
    """Return the error of a level of what has none."""
    expected = "an OME-Zarr image, whose group is named and not one of its arrays"
    return UsageError(f"{location}", found="no levels", expected=expected, remedy="leave level out")
