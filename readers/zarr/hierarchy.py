"""Hierarchy: the groups or arrays of a Zarr store by name, opened by zarr-python in the thread that asks.

Waiting for zarr-python's coroutines in the thread that asks. zarr-python's own functions leave an event loop and its
threads behind for as long as the process lives: a process that forks its workers later, as torch's loader does, would
fork with them.

Listing: the volumes of a Zarr hierarchy by name, of which there may be any number. zarr-python opens an array to list
it, which takes a millisecond or more; of a folder only the metadata are read here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, TypeVar

import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.api.asynchronous import open as open_async
from zarr.core.array import parse_array_metadata
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, StorePath

from voxload.files.limits import DOCUMENT, MEMBERS
from voxload.files.regular import check_regular, open_regular, parse_json, read_document
from voxload.readers.remote import RemoteStore
from voxload.readers.remote.fetchers import fetchers
from voxload.readers.remote.objects import Facts, Part
from voxload.readers.store import is_url

T = TypeVar("T")
_MOST_DOCUMENT = 2**14
"""Bytes of a document whose meaning is remembered."""


def waited(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what `coroutine` gives; no thread is left when it returns. Safe to call from many threads at once."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(coroutine)
    with ThreadPoolExecutor(1, thread_name_prefix="voxload-zarr") as other:  # a notebook's thread, which runs a loop
        return other.submit(_run, coroutine).result()


async def listed(found: AsyncIterator[T]) -> list[T]:
    """Return all that an asynchronous iterator yields."""
    return [item async for item in found]


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.new_event_loop()  # not asyncio.run: that takes the caller's own loop away
    try:
        return loop.run_until_complete(coroutine)
    finally:
        try:
            # One read of a batch failed: the others end first, so that nothing of the store is in use any more.
            if others := asyncio.all_tasks(loop):
                loop.run_until_complete(asyncio.wait(others))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


_DOCUMENTS = ("zarr.json", ".zarray", ".zmetadata")
"""How the names of the objects end that describe a hierarchy."""

_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
"""Objects that zarr-python parses."""


class Hierarchy(Store):
    """A store of zarr-python over a `RemoteStore`; reads only.

    zarr-python's own stores have their own retries, or none, and fsspec's takes trouble for absence.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, store: RemoteStore) -> None:
        super().__init__(read_only=True)
        self._store = store

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and other._store is self._store

    __hash__ = None  # type: ignore[assignment] # as zarr-python's own stores

    def __str__(self) -> str:
        return self._store.locate("")

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return an object or a part of it, or None when there is none."""
        part = await _fetched(partial(_get, self._store, key, byte_range))
        return None if part is None else prototype.buffer.from_bytes(part.data.tobytes())

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return several objects or parts."""
        return list(await asyncio.gather(*(self.get(key, prototype, span) for key, span in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Tell whether there is an object."""
        return await _fetched(partial(self._store.size, key)) is not None

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below `prefix`."""
        for name in await _fetched(partial(self._store.names, prefix)):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Refuse: what is read of a hierarchy is asked for by name."""
        raise NotImplementedError(prefix)
        yield ""

    async def list(self) -> AsyncIterator[str]:
        """Refuse: what is read of a hierarchy is asked for by name."""
        raise NotImplementedError
        yield ""

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse: nothing is written."""
        raise NotImplementedError(key)

    async def delete(self, key: str) -> None:
        """Refuse: nothing is written."""
        raise NotImplementedError(key)


def open_node(path: str, store: Any) -> zarr.Group | zarr.Array[Any]:
    """Return the group or array at `path`, whose objects are in `store`."""
    if not isinstance(store, RemoteStore):
        _check_metadata(path)
        known = _like_another(path, "")
        if known is not None:
            return known
    if isinstance(store, RemoteStore):
        return _node(waited(open_async(store=Hierarchy(store), mode="r")))
    # Of a folder each array's own document counts: copies of all in one are for storages that cannot list, and a tool
    # that adds an array need not know of them.
    return _node(waited(open_async(store=path, mode="r", use_consolidated=False)))


def member(group: zarr.Group, name: str) -> zarr.Group | zarr.Array[Any] | None:
    """Return what a group holds under a name, or None."""
    if isinstance(group.store, LocalStore):
        inner = f"{group.path}/{name}" if group.path else name
        _check_metadata(f"{group.store.root}/{inner}")
        known = _like_another(str(group.store.root), inner)
        if known is not None:
            return known
    found = waited(_async(group).get(name))
    return None if found is None else _node(found)


def members(group: zarr.Group, *, depth: int | None) -> dict[str, zarr.Group | zarr.Array[Any]]:
    """Return what a group holds, down to `depth` groups below; None means all."""
    return {name: _node(item) for name, item in waited(listed(_async(group).members(max_depth=depth)))}


class Waited:
    """An array that is read as numpy reads, without zarr-python's threads."""

    def __init__(self, array: zarr.Array[Any]) -> None:
        self._array = array
        self.ndim = array.ndim
        self.dtype = array.dtype
        self.shape = array.shape

    def __getitem__(self, selection: Any) -> Any:
        return values(self._array, selection)


def values(array: zarr.Array[Any], selection: Any) -> Any:
    """Return a part of an array as zarr-python reads it."""
    return waited(array.async_array.getitem(selection))


def _check_metadata(folder: str) -> None:
    """Refuse metadata that are too large to be parsed, or no files: zarr-python would read them all."""
    for name in _METADATA:
        path = f"{folder}/{name}"
        try:
            size = os.stat(path).st_size  # noqa: PTH116 - as is
        except (OSError, ValueError):
            continue
        check_regular(path)
        DOCUMENT.check(path, size, "metadata")


def _like_another(root: str, name: str) -> zarr.Array[Any] | None:
    """Return the array of format 3 at `name` below a folder, where its document says what another one's said; or None.

    Arrays of one data set mostly have the same document, byte for byte. To parse it takes zarr-python longer than to
    read a small array.
    """
    if name and not all(part.strip(".") for part in name.split("/")):
        return None  # a way out of the folder, or a name that zarr-python spells otherwise
    try:
        with open_regular(f"{root}/{name}/zarr.json" if name else f"{root}/zarr.json", buffering=0) as file:
            document = file.read(_MOST_DOCUMENT + 1)
    except OSError:
        return None  # of format 2, or no array: zarr-python says so
    metadata = _parsed(document) if len(document) <= _MOST_DOCUMENT else None
    if metadata is None:
        return None
    return zarr.Array(zarr.AsyncArray(metadata, StorePath(LocalStore(root, read_only=True), name)))


@lru_cache(maxsize=64)
def _parsed(document: bytes) -> Any:
    """Return an array's metadata as zarr-python parses them; None of what it refuses, or of a group."""
    try:
        found = parse_json(document)
        is_array = found.get("zarr_format") == 3 and found.get("node_type") == "array"
        return parse_array_metadata(found) if is_array else None
    except Exception:  # noqa: BLE001 - whoever opens it by zarr-python is told what is wrong, in its words
        return None


def _async(group: zarr.Group) -> zarr.AsyncGroup:
    return group._async_group  # noqa: SLF001 - arrays say theirs in public


def _node(found: Any) -> zarr.Group | zarr.Array[Any]:
    return zarr.Array(found) if isinstance(found, zarr.AsyncArray) else zarr.Group(found)


async def _fetched(ask: Callable[[], T]) -> T:
    """Await a request that is sent by one of the process's fetchers."""
    return await asyncio.get_running_loop().run_in_executor(fetchers(), ask)


def _get(store: RemoteStore, key: str, wanted: ByteRequest | None) -> Part | None:
    if wanted is None:
        part = store.whole(key)
        if part is not None and key.endswith(_DOCUMENTS):
            store.seen[key] = Facts.told(store.locate(key), part.size, part.version, part.modified)
        return part
    if isinstance(wanted, SuffixByteRequest):
        return store.edge(key, wanted.suffix, at_end=True)
    size = store.size(key)
    if size is None:
        return None
    start, stop = (wanted.start, wanted.end) if isinstance(wanted, RangeByteRequest) else (_offset(wanted), size)
    return Part(store.span(key, start, min(stop, size), ""), size)


def _offset(wanted: ByteRequest) -> int:
    if not isinstance(wanted, OffsetByteRequest):
        raise TypeError(wanted)
    return wanted.offset


_AXES = (3, 4)
_GROUP = "group"


def volume_names(group: zarr.Group, path: str, axes: Container[int] = _AXES) -> Iterator[str]:
    """Yield the names of all arrays of so many axes in the group at `path`, in no order.

    Raises ValueError for damaged metadata, DataError when there are more members than are listed.
    """
    if is_url(path):
        found = members(group, depth=None)
        yield from (name for name, item in found.items() if isinstance(item, zarr.Array) and item.ndim in axes)
        return
    for name, shape in _nodes(group, path):
        if shape != _GROUP and len(shape) in axes:
            yield name


def group_names(group: zarr.Group, path: str) -> Iterator[str]:
    """Yield the names of all groups below the group at `path`, a folder, in no order; raises as `volume_names`."""
    return (name for name, shape in _nodes(group, path) if shape == _GROUP)


def _nodes(group: zarr.Group, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the names of all groups and arrays in a folder, and the shape of each array."""
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
            if shape == _GROUP:
                left.append(name)
            yield name, shape


def _of_format_3(folder: str) -> Any:
    """Return the shape of an array, `_GROUP` of a group, None of what is no node."""
    node = _read(f"{folder}/zarr.json")
    if node is None:
        return None
    return _GROUP if node["node_type"] == "group" else node["shape"]


def _of_format_2(folder: str) -> Any:
    node = _read(f"{folder}/.zarray")
    if node is not None:
        return node["shape"]
    return None if _read(f"{folder}/.zgroup") is None else _GROUP


def _read(path: str) -> Any:
    try:
        return parse_json(read_document(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
