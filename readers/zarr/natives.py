"""ZarrNatives: what reads the chunks of an array by one call of the core, for each type that they are read as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from voxload.geometry import chunks_touched
from voxload.readers.chunks.checksums import Checksums
from voxload.readers.chunks.chunkcache import chunk_cache
from voxload.readers.chunks.chunkmoves import ListedShards, VolumeAxes
from voxload.readers.chunks.nativereads import Hold, NativeReads, NativeVolume
from voxload.readers.chunks.nativesources import FileSource, Source
from voxload.readers.maderead import MadeRead, Seen
from voxload.readers.pasting.pasteplan import Place, Wanted
from voxload.readers.requests import Request
from voxload.readers.storage.file import reads_directly
from voxload.readers.storage.locality import is_node_local
from voxload.readers.store import is_url
from voxload.readers.zarr.chunkfiles import ChunkFiles
from voxload.readers.zarr.openshards import OpenShards
from voxload.readers.zarr.reader import ZarrReader
from voxload.readers.zarr.route import NativeRoute

_PLACES = ((5, 31, 0, 1, 23, 456), (0, 8, 7, 0, 11, 2))
"""Of chunks that need not exist: what their keys have in common is the rule of all."""

FilesOf = Callable[[Sequence[Wanted]], Sequence[Place] | None]
ListShards = Callable[[Sequence[Wanted]], ListedShards | None]
_MOST_PLAIN_BYTES = 2**22
"""Larger reads of chunks that are stored as they are come faster out of a map."""


class ZarrNatives:
    """One `NativeReads` a type; safe to use from many threads at once.

    Parameters
    ----------
    make
        Makes the reads of a type; None where the core cannot.
    list_shards
        Lists the shards that hold some boxes; None where chunks are files of their own.
    only_repeats
        Whether reads are made again only, and those not large: of shards whose chunks are stored as they are, which a
        map holds.
    """

    def __init__(
        self,
        make: Callable[[np.dtype[Any]], NativeReads | None],
        *,
        list_shards: ListShards | None = None,
        only_repeats: bool = False,
    ) -> None:
        self._make, self._list_shards, self.only_repeats = make, list_shards, only_repeats
        self._made: dict[Any, NativeReads | None] = {}

    def find(self, target: np.dtype[Any]) -> NativeReads | None:
        """Return what reads chunks as `target`."""
        if target not in self._made:
            self._made[target] = self._make(target)
        return self._made[target]

    def read_again(self, requests: Sequence[Request]) -> bool:
        """Make a read that was made before by one call; False where it must be made as if new."""
        if chunk_cache() is not None or self.only_repeats:
            return False
        native = self._made.get(getattr(requests[0].out, "dtype", None))
        return native is not None and native.read_again(requests)

    def remember(self, requests: Sequence[Request], wanted: Sequence[Wanted]) -> None:
        """Remember a read that can be made by one call."""
        native = None if self.only_repeats else self._made.get(wanted[0].view.dtype)
        if native is not None:
            native.remember(requests, wanted)

    def made(self, wanted: Sequence[Wanted], base: int, *, seen: Seen, axes: VolumeAxes) -> MadeRead | None:
        """Return a read that was just made, of an array that is described by files as they were seen; see MadeRead."""
        if self.only_repeats and sum(one.view.nbytes for one in wanted) > _MOST_PLAIN_BYTES:
            return None
        native = self.find(wanted[0].view.dtype)
        if native is None or self._list_shards is None:
            return None if native is None else native.made(wanted, base, seen=seen, axes=axes)
        listed = self._list_shards(wanted)
        return None if listed is None else native.made(wanted, base, seen=seen, axes=axes, shards=listed)


def natives_of(
    chunks: object, reader: ZarrReader, route: NativeRoute, checksums: Checksums | None
) -> ZarrNatives | None:
    """Return the reads of an array; None where its chunks are not files of this node, or no rule names them."""
    folder, index, nbytes = reader.describe().location.path, reader.index, route.pipeline.nbytes
    if is_url(folder) or not is_node_local(folder) or reads_directly() or reader.grid is None:
        return None
    grid = reader.grid
    source: Source | None = None
    hold: Hold | None = None
    files_of: FilesOf | None = None
    list_shards: ListShards | None = None
    if isinstance(chunks, OpenShards) and index.layout.shard is not None:
        outer = tuple(-(-count // inner) for count, inner in zip(grid, index.layout.shard.grid, strict=True))
        source, hold = chunks.native_source(outer, nbytes), chunks.hold
        files_of = partial(_shards_of, chunks, index.layout.unit)
        list_shards = partial(_listed, chunks, index.layout.unit)
    elif isinstance(chunks, ChunkFiles):
        places = [place[-len(grid) :] for place in _PLACES]
        source = FileSource.of(folder.rstrip("/"), [(place, index.key_of(place)) for place in places], nbytes)
    if source is None:
        return None
    found = source

    def make(target: np.dtype[Any]) -> NativeReads | None:
        volume = NativeVolume.of(route.shape, route.pipeline, found, grid=grid, target=target, checksums=checksums)
        return None if volume is None else NativeReads(volume, hold=hold, files_of=files_of)

    is_plain = isinstance(chunks, OpenShards) and not route.pipeline.steps
    return ZarrNatives(make, list_shards=list_shards, only_repeats=is_plain)


def _listed(chunks: OpenShards, unit: Place, wanted: Sequence[Wanted]) -> ListedShards | None:
    """Return the shards that hold what is wanted, as `OpenShards.list_of` has them."""
    outers = _shards_of(chunks, unit, wanted)
    return None if outers is None else chunks.list_of(outers)


def _shards_of(chunks: OpenShards, unit: Place, wanted: Sequence[Wanted]) -> list[Place] | None:
    """Return the shards that hold what is wanted."""
    return chunks.holding([chunks_touched(one.box, unit) for one in wanted])
