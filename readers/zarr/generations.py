"""Generations: what tells a box of an array from itself once one of its chunks, or its metadata, were written anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zarr

from voxload.geometry import Box
from voxload.readers.generation import Generation, stamp_of
from voxload.readers.maderead import Seen
from voxload.readers.remote import RemoteStore
from voxload.readers.remote.fetchers import fetchers
from voxload.readers.remote.objects import Facts
from voxload.readers.storage.locality import is_node_local
from voxload.readers.storage.stamp import Stamp
from voxload.readers.store import Store
from voxload.readers.zarr.chunkindex import ChunkIndex

MOST_OBJECTS = 64
"""Of a box behind a URL, whose entity tags are asked for: each is a request, and two rounds of them are under way at
once. Boxes of more objects have no generation."""


class Generations:
    """Tells the generation of any box of one array; safe to use from many threads at once.

    The metadata are those that the array was opened by; chunks are asked for anew each time. A stretch of an array that
    is read while it is written has a generation that no next job finds.

    Parameters
    ----------
    array
        The array, as it was opened.
    index
        Names of its chunks' objects.
    store
        Where they are.
    since
        Moment before it was opened, in nanoseconds since 1970.
    """

    def __init__(self, array: zarr.Array[Any], index: ChunkIndex, store: Store, *, since: int) -> None:
        self._index = index
        self._store = store
        self._keys = keys = _documents(array)
        if isinstance(store, RemoteStore):
            self._documents: list[Stamp | Facts | None] = [store.seen.get(key) for key in keys]
            return
        self._is_local = is_node_local(store.locate(""))
        self._documents = [stamp_of(store.locate(key), since=since) for key in keys]

    def of(self, stored: Box) -> Generation | None:
        """Return that of a box in stored indices; None behind a URL where tags are weak or chunks too many."""
        keys = self._index.keys(stored)
        if not isinstance(self._store, RemoteStore):
            folder = self._store.locate("").rstrip("/")  # the names of many files take longer to join by pathlib
            stamps = self._asked(lambda key: stamp_of(f"{folder}/{key}"), keys)
            return Generation.of([*self._documents, *stamps])
        if len(keys) > MOST_OBJECTS or Generation.of(self._documents) is None:
            return None
        return Generation.of([*self._documents, *self._store.map(self._store.facts, keys)])

    def seen(self) -> Seen | None:
        """Return the files that describe the array, as they were, None for those that were not there.

        None of objects behind a URL, and where one may change unseen.
        """
        found: list[tuple[str, Stamp | None]] = []
        if isinstance(self._store, RemoteStore):
            return None
        for key, known in zip(self._keys, self._documents, strict=True):
            if isinstance(known, Facts) or (known is not None and not known.is_settled):
                return None
            found.append((self._store.locate(key), known))
        return found

    def is_outdated(self) -> bool:
        """Tell whether the metadata were written anew since, or may have been; of objects behind a URL, never."""
        if isinstance(self._store, RemoteStore):
            return False
        for key, known in zip(self._keys, self._documents, strict=True):
            if not isinstance(known, Stamp):
                if self._store.size(key) is not None:
                    return True
            elif not known.matches() or known.is_outdated:
                return True
        return False

    def _asked(self, ask: Callable[[str], Stamp | None], keys: list[str]) -> list[Stamp | None]:
        """Return `ask` of each key, many at once where answers take long."""
        if self._is_local or len(keys) == 1:
            return [ask(key) for key in keys]
        return list(fetchers().map(ask, keys))


def _documents(array: zarr.Array[Any]) -> list[str]:
    """Return the names of the objects that describe an array: its own, and its hierarchy's with copies of all."""
    own, of_all = ("zarr.json", "zarr.json") if array.metadata.zarr_format == 3 else (".zarray", ".zmetadata")
    return list(dict.fromkeys([of_all, f"{array.path}/{own}" if array.path else own]))
