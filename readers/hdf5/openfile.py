"""Opening HDF5 files: which they are, and whether somebody writes to them."""

from __future__ import annotations

from pathlib import Path

import h5py

from voxload.errors import StorageError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FLAGS_AT = {0: 20, 1: 20, 2: 11, 3: 11}
"""Version of the superblock to the place of its consistency flags."""
_WRITING = 0b101
"""Open for writing; open for writing by one and reading by many (SWMR)."""
_SUPERBLOCK_BYTES = 24


def find_superblock(path: str) -> int | None:
    """Return where the superblock begins: at 0, 512, 1024, ..., the places that the format allows; None without one.

    Source: HDF5 File Format Specification 3.0, section II.A (superblock).
    """
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        place = 0
        while place + len(SIGNATURE) <= size:
            file.seek(place)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return place
            place = max(512, 2 * place)
    return None


def is_open_for_writing(path: str) -> bool:
    """Tell whether a writer has the file open, or died before it closed it; libhdf5 itself asks only for version 3.

    Source: as above: the file consistency flags; libhdf5 sets them in superblocks of every version.
    """
    place = find_superblock(path)
    if place is None:
        return False
    with Path(path).open("rb") as file:
        file.seek(place)
        block = file.read(_SUPERBLOCK_BYTES)
    at = _FLAGS_AT.get(block[len(SIGNATURE)] if len(block) == _SUPERBLOCK_BYTES else -1)
    return at is not None and bool(block[at] & _WRITING)


def open_file(path: str) -> h5py.File:
    """Open a file for reading.

    Raises
    ------
    StorageError
        When libhdf5 refuses it because of its writer.
    OSError
        As h5py gives it, for all else.
    """
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if error.errno is not None or not is_open_for_writing(path):
            raise
        raise StorageError(
            path,
            found="a file that is open for writing, or whose writer did not close it",
            expected="a finished file",
            remedy="wait for its writer; if there is none any more, run h5clear --status on it and check it",
        ) from error
