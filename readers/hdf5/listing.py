"""Listing: what an HDF5 file holds by name; a file may hold any number of objects, so none is opened to be listed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import h5py

from voxload.limits import MEMBERS


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


def volume_names(file: h5py.File) -> Iterator[str]:
    """Yield the names of all datasets of three or four axes that have a name of text."""
    for name in object_names(file)[1]:
        # By its bytes nobody could ask for a dataset whose name is no text.
        with suppress(UnicodeEncodeError):
            stored = h5py.h5d.open(file.id, name.encode("utf-8"))
            if stored.rank in (3, 4):
                yield name
