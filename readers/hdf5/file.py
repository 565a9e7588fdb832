"""HDF5 file: where its superblock is, whether somebody writes to it, how it is opened, which names it holds.

Attributes are read one by one, and only what a few numbers or a text is. Nothing of another type is even asked for:
references may lead anywhere, and a table may be larger than memory.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Container, Iterator
from contextlib import suppress
from functools import cache
from math import prod
from typing import Any, BinaryIO, cast

import h5py

from voxload.errors import NotFoundError, StorageError, UsageError, VoxloadError
from voxload.files.limits import MEMBERS
from voxload.files.regular import check_regular, open_regular
from voxload.readers.cfpacking import Unread
from voxload.readers.foreign import driver_error
from voxload.readers.remote.file import RemoteFile
from voxload.text import listed

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FLAGS_AT = {0: 20, 1: 20, 2: 11, 3: 11}
"""Version of the superblock to the place of its consistency flags."""
_WRITING = 0b101
"""Open for writing; open for writing by one and reading by many (SWMR)."""
_SUPERBLOCK_BYTES = 24
_MOST_BYTES = 2**16
"""Of an attribute that is read; HDF5 itself keeps larger ones apart from the object's header."""
KINDS = {
    h5py.h5t.REFERENCE: "references",
    h5py.h5t.COMPOUND: "records",
    h5py.h5t.ENUM: "an enumeration",
    h5py.h5t.VLEN: "lists of any length",
    h5py.h5t.ARRAY: "arrays",
    h5py.h5t.OPAQUE: "opaque bytes",
    h5py.h5t.BITFIELD: "bits",
}
"""Classes of HDF5's types in words."""


def superblock_places(size: int) -> list[int]:
    """Return where a superblock may begin in a file of `size` bytes: at 0, 512, 1024, 2048, ...; pure.

    Source: HDF5 File Format Specification 3.0, section II.A (superblock).
    """
    places = [0]
    while (following := max(512, 2 * places[-1])) + len(SIGNATURE) <= size:
        places.append(following)
    return places if size >= len(SIGNATURE) else []


def find_superblock(path: str) -> int | None:
    """Return where the superblock of a file begins; None without one."""
    with open_regular(path, buffering=0) as file:
        return _find_superblock(file)


def _find_superblock(file: BinaryIO) -> int | None:
    for place in superblock_places(file.seek(0, os.SEEK_END)):
        file.seek(place)
        if file.read(len(SIGNATURE)) == SIGNATURE:
            return place
    return None


def is_open_for_writing(path: str) -> bool:
    """Tell whether a writer has a file open; see `has_writer`."""
    with open_regular(path, buffering=0) as file:
        return has_writer(file)


def has_writer(file: BinaryIO) -> bool:
    """Tell whether a writer has the file open, or died before it closed it; libhdf5 itself asks only for version 3.

    Source: as above: the file consistency flags; libhdf5 sets them in superblocks of every version.
    """
    place = _find_superblock(file)
    if place is None:
        return False
    file.seek(place)
    block = file.read(_SUPERBLOCK_BYTES)
    at = _FLAGS_AT.get(block[len(SIGNATURE)] if len(block) == _SUPERBLOCK_BYTES else -1)
    return at is not None and bool(block[at] & _WRITING)


def open_file(file: str | RemoteFile) -> h5py.File:
    """Open a file for reading, by its path or as a file of Python's.

    Raises
    ------
    StorageError
        When libhdf5 refuses it because of its writer.
    UsageError
        When it is one of several files that libhdf5 wrote as one.
    OSError
        As h5py gives it, for all else.
    """
    if isinstance(file, str):
        check_regular(file)
    try:
        if not isinstance(file, str):
            return h5py.File(file, "r")
        return h5py.File(h5py.h5f.open(os.fsencode(file), h5py.h5f.ACC_RDONLY, fapl=_access()))
    except VoxloadError:  # of the storage behind a file of Python's
        raise
    except OSError as error:
        if error.errno is not None:
            raise
        other = _driver_error(file)
        if other is not None:
            raise other from error
        if not _has_writer(file):
            raise
        raise StorageError(
            f"{file}",
            found="a file that is open for writing, or whose writer did not close it",
            expected="a finished file",
            remedy="wait for its writer; if there is none any more, run h5clear --status on it and check it",
        ) from error


@cache
def _access() -> Any:
    """Return how h5py opens files by default, made once: that takes as long as opening one."""
    found = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    found.set_libver_bounds(h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_LATEST)
    return found


def _driver_error(file: str | RemoteFile) -> UsageError | None:
    if isinstance(file, str):
        with open_regular(file) as opened:
            place = _find_superblock(opened)
            return None if place is None else driver_error(file, opened, place)
    remote = cast("BinaryIO", file)
    place = _find_superblock(remote)
    return None if place is None else driver_error(f"{file}", remote, place)


def _has_writer(file: str | RemoteFile) -> bool:
    return is_open_for_writing(file) if isinstance(file, str) else has_writer(cast("BinaryIO", file))


def has_more(file: h5py.File, most: int) -> bool:
    """Tell whether a file holds more than `most` objects, by a look at so many."""
    count = itertools.count()
    return h5py.h5o.visit(file.id, lambda _: True if next(count) > most else None) is not None


def object_names(file: h5py.File) -> tuple[list[str], list[str]]:
    """Return the names of all groups, and those of all datasets, each of an object once and no link's.

    Bytes of a name that are no UTF-8 become surrogates. Raises DataError when there are more than are listed.
    """
    groups: list[str] = []
    datasets: list[str] = []
    allowed = MEMBERS.allowed

    def visit(name: bytes, info: Any) -> None:
        if info.type == h5py.h5o.TYPE_GROUP and name != b".":
            groups.append(os.fsdecode(name))
        elif info.type == h5py.h5o.TYPE_DATASET:
            datasets.append(os.fsdecode(name))
        if len(groups) + len(datasets) > allowed:
            MEMBERS.check(file.filename, len(groups) + len(datasets), "an HDF5 file")

    h5py.h5o.visit(file.id, visit, info=True)
    return groups, datasets


def volume_names(file: h5py.File, axes: Container[int] = (3, 4)) -> Iterator[str]:
    """Yield the names of all datasets of so many axes that have a name of text."""
    for name in object_names(file)[1]:
        # By its bytes nobody could ask for a dataset whose name is no text.
        with suppress(UnicodeEncodeError):
            stored = h5py.h5d.open(file.id, name.encode("utf-8"))
            if stored.rank in axes:
                yield name


def read_attribute(file: h5py.File, path: str, *, node: str, name: str) -> Any:
    """Return an attribute of the object `node`, the file itself where that is empty, as h5py gives it.

    None where it has no value, `Unread` where it is no number, truth or text, or is too large.

    Raises NotFoundError when there is no such object or attribute, UsageError for a link to another file.
    """
    item = file.get(node) if node else file
    if not isinstance(item, h5py.Group | h5py.Dataset):
        raise NotFoundError(path, found=f"no group or dataset {node!r}", expected=f"one of {listed(sorted(file))}")
    check_own_file(item, file, f"{path}:{node}")
    if not h5py.h5a.exists(item.id, name.encode()):
        names = listed(sorted(item.attrs))
        raise NotFoundError(f"{path}:{node}@{name}", found="no such attribute", expected=f"one of {names}")
    return _value(item, name)


def object_at(file: h5py.File, name: str) -> Any:
    """Return the identifier of what a name leads to; None where it leads nowhere.

    As h5py looks it up, but for the object of Python's that it makes of it, which takes as long again.
    """
    try:
        return h5py.h5o.open(file.id, name.encode("utf-8"))
    except KeyError:
        return None


def check_own_file(item: h5py.Group | h5py.Dataset, file: h5py.File, subject: str) -> None:
    """Refuse an object that a link leads to in another file: what is known of `file` says nothing about that one."""
    other = h5py.h5f.get_name(item.id)
    if other == h5py.h5f.get_name(file.id):
        return
    # One file may be open by several names. Not asked first: the answer comes with sizes, for which chunks are counted.
    if h5py.h5o.get_info(item.id).fileno != h5py.h5o.get_info(file.id).fileno:
        raise UsageError(
            subject,
            found=f"a link to another file, {os.fsdecode(other)}:{str(item.name).removeprefix('/')}",
            expected="an object of the file itself",
            remedy="name that file and object instead",
        )


def _value(item: h5py.Group | h5py.Dataset, name: str) -> Any:
    attribute: Any = h5py.h5a.open(item.id, name.encode())
    kind, shape = attribute.get_type(), attribute.shape
    if shape is None:
        return None
    is_number = isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID) or attribute.dtype.kind == "b"
    is_text = isinstance(kind, h5py.h5t.TypeStringID) and prod(shape) == 1
    if not is_number and not is_text:
        return Unread("several texts" if isinstance(kind, h5py.h5t.TypeStringID) else _named(kind))
    # A text of no fixed length is no longer than its file, and was read with the object's header.
    if not (is_text and kind.is_variable_str()) and prod(shape) * kind.get_size() > _MOST_BYTES:
        return Unread(f"an attribute of {prod(shape) * kind.get_size():,} bytes")
    value = item.attrs[name]
    return value.flat[0] if is_text and shape else value


def _named(kind: Any) -> str:
    return f"an attribute of {KINDS.get(kind.get_class(), 'another type')}"
