"""Formats that are known by name and not read: named, so that nobody takes a file of them for damaged or empty."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from voxload.errors import UsageError
from voxload.readers.faults import translated
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
