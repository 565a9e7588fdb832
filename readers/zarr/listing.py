"""Listing: the volumes of a Zarr hierarchy by name, of which there may be any number.

zarr-python opens an array to list it, which takes a millisecond or more; of a folder only the metadata are read here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import zarr

from voxload.documents import parse_json, read_document
from voxload.limits import MEMBERS
from voxload.readers.store import is_url
from voxload.readers.zarr.hierarchy import members

_AXES = (3, 4)


def volume_names(group: zarr.Group, path: str) -> Iterator[str]:
    """Yield the names of all arrays of three or four axes in the group at `path`, in no order.

    Raises ValueError for damaged metadata, DataError when there are more members than are listed.
    """
    if is_url(path):
        found = members(group, depth=None)
        yield from (name for name, item in found.items() if isinstance(item, zarr.Array) and item.ndim in _AXES)
        return
    look, count, left = (_of_format_2 if group.metadata.zarr_format == 2 else _of_format_3), 0, [""]
    while left:
        above = left.pop()
        with os.scandir(f"{path}/{above}") as entries:
            names = [f"{above}/{entry.name}" if above else entry.name for entry in entries if entry.is_dir()]
        for name in names:
            shape = look(f"{path}/{name}")
            if shape is None:
                continue
            count += 1
            MEMBERS.check(path, count, "a Zarr hierarchy")
            if shape == "group":
                left.append(name)
            elif len(shape) in _AXES:
                yield name


def _of_format_3(folder: str) -> Any:
    """Return the shape of an array, "group" of a group, None of what is no node."""
    node = _read(f"{folder}/zarr.json")
    if node is None:
        return None
    return "group" if node["node_type"] == "group" else node["shape"]


def _of_format_2(folder: str) -> Any:
    node = _read(f"{folder}/.zarray")
    if node is not None:
        return node["shape"]
    return None if _read(f"{folder}/.zgroup") is None else "group"


def _read(path: str) -> Any:
    try:
        return parse_json(read_document(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
