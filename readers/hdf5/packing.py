"""The CF attributes of an HDF5 dataset, read without trust in their sizes and types."""

from __future__ import annotations

from math import prod
from typing import Any

import h5py

from voxload.readers.cfpacking import MOST_VALUES, NAMES, UNSIGNED, Unread, check_packing

_LONGEST_TEXT = 64
"""Bytes of a text of fixed length that is read."""


def check_unpacked(dataset: h5py.Dataset, subject: str) -> None:
    """Refuse a dataset whose numbers stand for others; see `voxload.readers.cfpacking`.

    Costs a look for five names in the dataset's header, which libhdf5 has read already, or in the index of its
    attributes where these are many.
    """
    found = {}
    for name in NAMES:
        if h5py.h5a.exists(dataset.id, name.encode()):
            found[name] = _value(dataset, name)
    if found:
        check_packing(subject, found, dataset.dtype)


def _value(dataset: h5py.Dataset, name: str) -> Any:
    """Return an attribute that is a few numbers, or a short text; what else it is, it stays unread.

    Nothing of another type is even asked for: references may lead anywhere, and a table may be larger than memory.
    """
    attribute: Any = h5py.h5a.open(dataset.id, name.encode())
    kind, shape = attribute.get_type(), attribute.shape
    if shape is None:
        return Unread("no value")
    if isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        return dataset.attrs[name] if prod(shape) <= MOST_VALUES else Unread(f"an array of shape {shape}")
    if isinstance(kind, h5py.h5t.TypeStringID):
        # A text of any length is no longer than its file.
        is_short = prod(shape) == 1 and (kind.get_size() <= _LONGEST_TEXT if not kind.is_variable_str() else True)
        return dataset.attrs[name] if is_short and name == UNSIGNED else Unread("text")
    return Unread(f"an attribute of {_KINDS.get(kind.get_class(), 'another type')}")


_KINDS = {
    h5py.h5t.REFERENCE: "references",
    h5py.h5t.COMPOUND: "records",
    h5py.h5t.ENUM: "an enumeration",
    h5py.h5t.VLEN: "lists of any length",
    h5py.h5t.ARRAY: "arrays",
    h5py.h5t.OPAQUE: "opaque bytes",
    h5py.h5t.BITFIELD: "bits",
}
"""Classes of HDF5's types in words."""
