"""Attributes of HDF5 files: read one by one, and only what a few numbers or a text is.

Nothing of another type is even asked for: references may lead anywhere, and a table may be larger than memory.
"""

from __future__ import annotations

import os
from math import prod
from typing import Any

import h5py

from voxload.errors import NotFoundError, UsageError
from voxload.readers.cfpacking import Unread
from voxload.readers.hdf5.source import open_source
from voxload.text import listed

MOST_BYTES = 2**16
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


def read_attribute(path: str, node: str, name: str) -> Any:
    """Return an attribute of the object `node`, the file itself where that is empty, as h5py gives it.

    None where it has no value, `Unread` where it is no number, truth or text, or is too large.

    Raises NotFoundError when there is no such object or attribute, UsageError for a link to another file.
    """
    with open_source(path).open() as file:
        item = file.get(node) if node else file
        if not isinstance(item, h5py.Group | h5py.Dataset):
            raise NotFoundError(path, found=f"no group or dataset {node!r}", expected=f"one of {listed(sorted(file))}")
        other = h5py.h5f.get_name(item.id)
        if other != h5py.h5f.get_name(file.id) and _number(item) != _number(file):
            raise UsageError(
                f"{path}:{node}",
                found=f"a link to another file, {os.fsdecode(other)}",
                expected="an object of the file itself",
                remedy="name that file instead",
            )
        if not h5py.h5a.exists(item.id, name.encode()):
            names = listed(sorted(item.attrs))
            raise NotFoundError(f"{path}:{node}@{name}", found="no such attribute", expected=f"one of {names}")
        return _value(item, name)


def _number(item: h5py.Group | h5py.Dataset) -> int:
    """Return the number of an object's file: one file may be open by several names."""
    found: int = h5py.h5o.get_info(item.id).fileno
    return found


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
    if not (is_text and kind.is_variable_str()) and prod(shape) * kind.get_size() > MOST_BYTES:
        return Unread(f"an attribute of {prod(shape) * kind.get_size():,} bytes")
    value = item.attrs[name]
    return value.flat[0] if is_text and shape else value


def _named(kind: Any) -> str:
    return f"an attribute of {KINDS.get(kind.get_class(), 'another type')}"
