"""Arrays: what ZarrFormat does with the help of zarr-python, which is imported with this file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import zarr

from voxload.errors import NotFoundError
from voxload.geometry import Box
from voxload.readers.cfpacking import Packed
from voxload.readers.chunks.verified import VerifiedReader, load_checksums
from voxload.readers.faults import translated
from voxload.readers.protocol import Location, Missing, Reader, Vector, as_vector
from voxload.readers.store import open_store
from voxload.readers.zarr.checks import ChunkHeaders, local_arrays, naming_types, packing
from voxload.readers.zarr.hierarchy import Waited, group_names, member, members, open_node, volume_names
from voxload.readers.zarr.multiscale import Multiscale, multiscale_of
from voxload.readers.zarr.native import NativeZarrReader
from voxload.readers.zarr.reader import ZarrReader, absent_error, chunk_index, codec_names
from voxload.text import listed


def array_names(path: str) -> tuple[str, ...]:
    """See ZarrFormat.datasets."""
    with translated(path):
        store = open_store(path)
        with naming_types(store, path, local_arrays(path)):
            node = open_node(path, store)
            if isinstance(node, zarr.Array):
                return ("",)
            return tuple(sorted(volume_names(node, path)))


def local_volumes(path: str, axes: Sequence[int]) -> tuple[tuple[str, ...], dict[str, Multiscale]]:
    """Return the names of the arrays of so many axes in a folder, and its images by the groups that hold them.

    One unnamed array where the folder is an array. Raises DataError where metadata are damaged.
    """
    with translated(path):
        store = open_store(path)
        with naming_types(store, path, local_arrays(path)):
            node = open_node(path, store)
            if isinstance(node, zarr.Array):
                return ("",), {}
            names = tuple(sorted(volume_names(node, path, axes)))
            groups = {name: member(node, name) for name in sorted(group_names(node, path))}
    found: dict[str, Multiscale] = {}
    for name, group in {"": node, **groups}.items():
        image = multiscale_of(group, Location(path, name)) if isinstance(group, zarr.Group) else None
        if image is not None:
            found[name] = image
    return names, found


def is_crowded(path: str, most: int) -> bool:
    """See ZarrFormat.is_crowded."""
    with translated(path):
        node = open_node(path, open_store(path))
        if isinstance(node, zarr.Array):
            return False
        return len(list(itertools.islice(volume_names(node, path), most + 1))) > most


def holds_array(path: str, name: str) -> bool:
    """See ZarrFormat.holds."""
    with translated(path):
        store = open_store(path)
        with naming_types(store, path, (name, "")):
            node = open_node(path, store)
            item = member(node, name) if name and isinstance(node, zarr.Group) else None
    return isinstance(item, zarr.Array) and item.ndim in (3, 4)


def open_array(location: Location, missing: Missing) -> Reader:
    """See ZarrFormat.open."""
    reader = ZarrReader(location, missing)
    if not isinstance(reader.route, str):
        return NativeZarrReader(reader, reader.route, reader.missing)
    checksums = load_checksums(location, reader.grid)
    return VerifiedReader(reader, checksums) if checksums else reader


def read_vector(path: str, name: str) -> Vector:
    """See ZarrFormat.read_vector."""
    with translated(path):
        store = open_store(path)
        node = open_node(path, store)
        item = member(node, name) if isinstance(node, zarr.Group) else None
        if isinstance(item, zarr.Array):
            location = Location(path, name)
            index, whole = chunk_index(item, location, store), Box.whole(item.shape)
            absent = index.first_missing(whole)
            if absent is not None:
                raise absent_error(*absent, location)
            packing(item, str(location), Packed.REFUSED)
            ChunkHeaders(location, codec_names(item.metadata)).check(index, store, whole)
            return as_vector(f"{path}:{name}", Waited(item))
        found = members(node, depth=0) if isinstance(node, zarr.Group) else {}
        names = sorted(name for name, item in found.items() if isinstance(item, zarr.Array))
    raise NotFoundError(path, found=f"no array {name!r}", expected=f"one of {listed(names)}")


def read_attribute(path: str, node: str, name: str) -> Any:
    """See ZarrFormat.read_attribute."""
    with translated(path):
        top = open_node(path, open_store(path))
        item = top if not node else member(top, node) if isinstance(top, zarr.Group) else None
        if item is None:
            found = sorted(members(top, depth=0)) if isinstance(top, zarr.Group) else []
            raise NotFoundError(path, found=f"no group or array {node!r}", expected=f"one of {listed(found)}")
        attributes = item.metadata.attributes
        if name not in attributes:
            names = listed(sorted(attributes))
            raise NotFoundError(f"{path}:{node}@{name}", found="no such attribute", expected=f"one of {names}")
        return attributes[name]
