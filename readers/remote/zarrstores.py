"""ZarrStoreObjects: objects of a store that the user has made, of zarr-python's contract, whatever is behind it.

Icechunk, VirtualiZarr, kerchunk's references and stores of one's own are read so, with our planning on top.

A store is an object, and a place is a text. So a store gets a name that begins with a scheme of its own, and carries
itself with that name, to other processes too. A name that nobody here made means nothing: a stranger's file cannot
name a store.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
import secrets
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

import numpy as np

from voxload.errors import DataError, StorageError, UsageError
from voxload.readers.remote.objects import Facts, Part, Traffic, TransientError

T = TypeVar("T")

SCHEME = "zarr-store"
_LOST = (ConnectionError, TimeoutError)
_TOKEN = 32
"""Letters of a name that stand for a store: sixteen bytes."""
_LONGEST = 120
"""Letters of what a store calls itself that a message has."""
_lock = threading.Lock()
_stores: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""The stores of this process by the first part of their names, while anybody has them."""


class StoreName(str):
    """The name of a store, or of what is below a path in it; has the store with it."""

    __slots__ = ("store",)
    store: Any

    def __new__(cls, store: Any, path: str = "") -> Self:
        """Return a name; names are equal only of stores that are, or would be if they were sent elsewhere."""
        with _lock:
            token = _token(store)
            known = _stores.setdefault(token, store)
        made = super().__new__(cls, f"{SCHEME}://{token}" + (f"/{path.strip('/')}" if path.strip("/") else ""))
        made.store = known
        return made

    def __reduce__(self) -> tuple[type[StoreName], tuple[Any, str]]:
        """Return it with its store, for other processes."""
        return StoreName, (self.store, _path_of(self))


def is_zarr_store(given: object) -> bool:
    """Tell whether an object is a store of zarr-python's; zarr-python is not imported for it."""
    return any((kind.__module__, kind.__name__) == ("zarr.abc.store", "Store") for kind in type(given).__mro__)


class ZarrStoreObjects:
    """Objects of a store below one path; see the Objects contract.

    Stores say neither versions nor, without reading them, always sizes. What is asked of one runs in zarr-python's own
    loop, where its connections are.

    Raises UsageError for a name that no store of this process has.
    """

    needs_threads = True

    def __init__(self, url: str, traffic: Traffic) -> None:
        store = url.store if isinstance(url, StoreName) else _stores.get(_token_of(url))
        if store is None:
            raise UsageError(
                url,
                found="the name of a store that is not there",
                expected="one that this process has",
                remedy="give the data set the store itself, and keep it",
            )
        self._store, self._path, self._traffic = store, _path_of(url), traffic
        self._zarr: Any = importlib.import_module("zarr.abc.store")
        self._sync: Any = importlib.import_module("zarr.core.sync")
        self._prototype = importlib.import_module("zarr.core.buffer").default_buffer_prototype()

    def locate(self, key: str) -> str:
        """Return what the store calls itself, with an object's key."""
        return f"{_said(self._store)}/{self._key(key)}".rstrip("/")

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, or None when there is none."""
        if not self._key(key):
            return None
        return self._answer(key, lambda: self._size(key))

    def facts(self, key: str) -> Facts | None:
        """Return what is told of an object; nothing by which it could be known again."""
        size = self.size(key)
        return None if size is None else Facts(size, "", is_settled=False)

    def whole(self, key: str, limit: int | None) -> Part | None:
        """Return an object, or None when there is none; raises DataError when it is longer than `limit`."""
        data = self._get(key, None)
        if data is not None and limit is not None and data.size > limit:
            raise DataError(self.locate(key), found=f"{data.size} bytes", expected=f"at most {limit}")
        return None if data is None else Part(data, data.size)

    def span(self, key: str, start: int, stop: int, version: str) -> Part | None:  # noqa: ARG002 - stores have none
        """Return the bytes from `start` to `stop`, fewer where the object ends."""
        data = self._get(key, self._zarr.RangeByteRequest(start, stop))
        return None if data is None else Part(data, stop)

    def tail(self, key: str, length: int) -> Part | None:
        """Return the last `length` bytes, or all where there are fewer."""
        size = self.size(key)
        if size is None:
            return None
        begin = max(0, size - length)
        data = self._get(key, self._zarr.RangeByteRequest(begin, size)) if size else np.empty(0, np.uint8)
        return None if data is None else Part(data, size)

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below `prefix`; none where the store cannot list."""
        if not self._store.supports_listing:
            return []

        async def listed() -> list[str]:
            return [name.rstrip("/") async for name in self._store.list_dir(self._key(prefix))]

        return self._answer(prefix, listed) or []

    async def _size(self, key: str) -> int | None:
        name = self._key(key)
        try:
            # Stores that have no size at hand read the object for it: some of them raise where there is none.
            return int(await self._store.getsize(name)) if await self._store.exists(name) else None
        except NotImplementedError:  # VirtualiZarr's
            found = await self._store.get(name, self._prototype)
            return None if found is None else len(found)

    def _get(self, key: str, wanted: Any) -> Any:
        """Return bytes of an object; None where there is none."""

        async def got() -> Any:
            return await self._store.get(self._key(key), self._prototype, byte_range=wanted)

        found = self._answer(key, got) if self._key(key) else None
        return None if found is None else np.frombuffer(found.to_bytes(), np.uint8)

    def _key(self, key: str) -> str:
        return f"{self._path}/{key}".strip("/")

    def _answer(self, key: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """Ask the store once; None when there is no such object."""
        self._traffic.add(requests=1)

        async def asked() -> T:
            await self._store._ensure_open()  # noqa: SLF001 - as the classes of zarr-python do that use stores
            return await ask()

        try:
            found: T = self._sync.sync(asked())
        except (FileNotFoundError, KeyError, NotADirectoryError, IsADirectoryError):
            return None
        except _LOST as error:
            raise TransientError(f"{type(error).__name__}: {error}") from error
        except MemoryError:
            raise
        except Exception as error:
            raise StorageError(
                self.locate(key),
                found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason'}",
                expected="a store that answers",
                remedy="see what the store says, and whether zarr-python can read it",
            ) from error
        return found


class _Digest:
    """A file that keeps nothing of what is written to it but its digest."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Take bytes in."""
        view = memoryview(data).cast("B")
        self.digest.update(view)
        return view.nbytes


def _token(store: Any) -> str:
    """Return what tells a store from all others: its pickle, for what stores say of themselves may be said by several.

    One that cannot be sent elsewhere, or whose pickle is all that it holds, is known by itself.
    """
    known = next((token for token, other in _stores.items() if other is store), None)
    if known is not None:
        return known
    written = _Digest()
    if not any(kind.__name__ == "MemoryStore" for kind in type(store).__mro__):
        try:
            pickle.Pickler(written, protocol=5).dump(store)
        except Exception:  # noqa: BLE001 - stores say in their own ways that they cannot
            written = _Digest()
        else:
            return written.digest.hexdigest()[:_TOKEN]
    return secrets.token_hex(_TOKEN // 2)


def _said(store: Any) -> str:
    """Return what a store calls itself, in a line."""
    lines = str(store).splitlines() or [type(store).__name__]
    return lines[0] if len(lines) == 1 and len(lines[0]) <= _LONGEST else f"{type(store).__name__}"


def _token_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


def _path_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[2]
