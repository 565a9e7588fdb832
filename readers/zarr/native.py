"""NativeZarrReader: boxes of a Zarr array without zarr-python's pipeline, by as many threads as there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import NoReturn, Protocol

import numpy as np

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.chunks.chunkcache import Identity
from voxload.readers.chunks.chunked import ChunkedVolume, Fetch, Fetched, FileNames, Mapped, with_slot
from voxload.readers.chunks.chunkmoves import VolumeAxes
from voxload.readers.chunks.storedchunks import StoredChunks
from voxload.readers.chunks.verified import load_checksums, verified
from voxload.readers.faults import translated
from voxload.readers.generation import Generation
from voxload.readers.maderead import MadeRead
from voxload.readers.pasting.pasteplan import Place, Wanted
from voxload.readers.protocol import UNKNOWN_BYTES, Location, Missing, ReadCost, Volume, VolumeInfo, closed, copy_cast
from voxload.readers.remote import RemoteStore, Traffic
from voxload.readers.requests import Request, check_requests, read_wanted, wanted_in_place
from voxload.readers.storage.file import reads_directly
from voxload.readers.storage.locality import is_node_local
from voxload.readers.store import is_url
from voxload.readers.zarr.chunkfiles import ChunkFiles
from voxload.readers.zarr.natives import natives_of
from voxload.readers.zarr.openshards import OpenShards
from voxload.readers.zarr.reader import ZarrReader
from voxload.readers.zarr.remotechunks import RemoteChunks, RemoteShards
from voxload.readers.zarr.route import NativeRoute

_GATHERED_BYTES = 2**26
"""Buffers for larger chunks are made once a file's size is known: until then only metadata speak of theirs."""


class _Chunks(Protocol):
    """Where stored chunks come from; all methods but `close` may be called from many threads at once."""

    def fetch(self, place: Place) -> Fetched | None:
        """Return a chunk as stored, or None where it was never written."""
        ...

    def fetch_part(self, place: Place, start: int, stop: int) -> Fetched | None:
        """Return a chunk of which only the bytes from `start` to `stop` need be what is stored."""
        ...

    def identify(self, places: Sequence[Place]) -> Sequence[Identity | None]:
        """Tell chunks from all others; None of those of which nothing tells that they were not written anew."""
        ...

    def locate(self, places: Sequence[Place]) -> Mapped | None:
        """Return where chunks that are stored as they are lie in memory; None when one is not as it should be."""
        ...

    def expect(self, places: Sequence[Place]) -> AbstractContextManager[Fetch]:
        """Let the chunks at `places` come ahead of their use; gives what hands them out."""
        ...

    def name(self, place: Place) -> str:
        """Return a chunk's name in the hierarchy."""
        ...

    def check_unchanged(self) -> None:
        """Refuse files that changed since something of them was remembered."""
        ...

    def is_outdated(self) -> bool:
        """Tell whether files of which something is remembered should be opened anew; see `Stamp.is_outdated`."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class _Required:
    """Chunks of which every one must have been written."""

    def __init__(self, chunks: _Chunks) -> None:
        self._chunks = chunks

    def fetch(self, place: Place) -> Fetched:
        """Return a chunk as stored; raises DataError when it was never written."""
        return self._chunks.fetch(place) or self._absent(place)

    def fetch_part(self, place: Place, start: int, stop: int) -> Fetched:
        """Return a chunk of which only the bytes from `start` to `stop` need be what is stored."""
        return self._chunks.fetch_part(place, start, stop) or self._absent(place)

    def locate(self, places: Sequence[Place]) -> Mapped | None:
        """Return where chunks that are stored as they are lie in memory; None when one is not there."""
        found = self._chunks.locate(places)
        return found if found and found.addresses.all() else None

    @contextmanager
    def expect(self, places: Sequence[Place]) -> Iterator[Fetch]:
        """Let the chunks at `places` come ahead of their use; yields what hands them out."""
        with self._chunks.expect(places) as fetch:
            yield lambda place: fetch(place) or self._absent(place)

    def _absent(self, place: Place) -> NoReturn:
        raise DataError(
            f"no chunk {self._chunks.name(place)}",
            expected='every chunk stored, or missing="fill" (convert --missing fill) for those never written',
        )


_OWN_BYTES = 2**18
"""What a reader of files is counted for."""


class NativeZarrReader:
    """Reads boxes of one Zarr array; see the Reader contract.

    zarr-python is asked for metadata only. Chunks are read, decoded and pasted by the process's team of threads.

    Parameters
    ----------
    reader
        The same array through zarr-python; it is closed with this reader.
    route
        How its chunks are read.
    missing
        What to do about chunks that are not there.
    """

    def __init__(self, reader: ZarrReader, route: NativeRoute, missing: Missing) -> None:
        self._reader = reader
        self._info = replace(reader.describe(), route="native")
        self._chunks: _Chunks = _chunks(reader, route)
        volume = _volume(self._info.location, self._chunks, route, missing)
        checksums = load_checksums(self._info.location, reader.grid)
        self._volume = verified(volume, checksums, self._chunks.name)
        self._natives = natives_of(self._chunks, reader, route, checksums)
        if self._natives is not None and not self._natives.only_repeats:
            self._volume = replace(self._volume, native=self._natives.find)  # which compares with checksums itself
        self._is_open = True

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._info

    @property
    def traffic(self) -> Traffic | None:
        """What was asked of the storage, since the array was opened; None of local files."""
        return self._reader.traffic

    @property
    def held_bytes(self) -> int:
        """About as many bytes as this holds: the array's metadata, and indices of the shards used last."""
        return UNKNOWN_BYTES if self.traffic is not None else _OWN_BYTES

    def cost(self, box: Box) -> ReadCost:
        """Return chunks and bytes of `box`, with the indices of the shards it touches."""
        return self._reader.cost(box)

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`; only its chunks are read."""
        self.read_many([Request(box, out)])

    def read_many(self, requests: Sequence[Request]) -> None:
        """Read many boxes; a chunk that several want is decoded once."""
        if self._natives is not None and requests and self._natives.read_again(requests):
            return
        check_requests(self._info, requests)
        if not self._is_open:
            raise closed(self._info)
        subject = f"{self._info.location}, box {requests[0].box}" if requests else str(self._info.location)
        with translated(subject), with_slot(is_local=self.traffic is None):
            self._chunks.check_unchanged()
            read_wanted(self._info, self._reader.order, requests, self._read)
        if self._natives is not None and (wanted := wanted_in_place(self._info, self._reader.order, requests)):
            self._natives.remember(requests, wanted)

    def made_read(self, requests: Sequence[Request], base: int) -> MadeRead | None:
        """See Repeatable."""
        natives, seen = self._natives, self._reader.seen()
        wanted = wanted_in_place(self._info, self._reader.order, requests) if natives is not None else None
        if natives is None or seen is None or not wanted:
            return None
        axes = VolumeAxes.of(self._reader.order.axes, self._reader.index.cost)
        return natives.made(wanted, base, seen=seen, axes=axes)

    def generation(self, box: Box) -> Generation | None:
        """See Dated; behind a URL by a request for each object."""
        return self._reader.generation(box)

    def is_outdated(self) -> bool:
        """See Dated; so are arrays whose metadata were written anew."""
        return self._reader.is_outdated() or self._chunks.is_outdated()

    def stored_chunks(self) -> StoredChunks:
        """Return the chunks as they are stored, the inner ones where they lie in shards."""
        volume = self._volume

        def decode(_place: Place, fetched: Fetched) -> None:
            volume.pipeline.decode(fetched.data, mask=fetched.mask)

        unit = self._reader.index.layout.unit
        return StoredChunks(self._reader.grid, unit, volume.fetch, decode, self._chunks.name, volume.expect)

    def close(self) -> None:
        """Close the shards that are open."""
        self._is_open = False
        self._natives = None
        self._chunks.close()
        self._reader.close()

    def _read(self, wanted: list[Wanted]) -> None:
        self._volume.read_all(wanted, fill=self._fill)

    def _fill(self, view: Volume) -> None:
        copy_cast(view, np.asarray(self._reader.fill_value))


def _volume(location: Location, chunks: _Chunks, route: NativeRoute, missing: Missing) -> ChunkedVolume:
    # Of functions of `chunks` and not of the reader: one that refers to itself keeps its files open until the next
    # collection.
    source = chunks if missing is Missing.FILL else _Required(chunks)
    is_here = not is_url(location.path) and is_node_local(location.path) and not reads_directly()
    is_plain = is_here and not route.pipeline.steps
    return ChunkedVolume(
        str(location),
        route.shape,
        route.pipeline,
        source.fetch,
        fetch_part=source.fetch_part if is_plain else None,
        expect=source.expect,
        locate=source.locate if is_plain else None,
        files=_files(chunks, route) if is_plain else None,
        identify=chunks.identify,
    )


def _chunks(reader: ZarrReader, route: NativeRoute) -> _Chunks:
    """Return where the array's chunks come from."""
    folder, index = reader.describe().location.path, reader.index
    exact = None if route.pipeline.steps else route.pipeline.nbytes
    if isinstance(reader.store, RemoteStore):
        if index.layout.shard is not None:
            return RemoteShards(reader.store, index)
        return RemoteChunks(reader.store, index, decoded=route.pipeline.nbytes, is_plain=exact is not None)
    if index.layout.shard is not None:
        return OpenShards(folder, index.key_of, index.layout.shard, exact=exact)
    return ChunkFiles(folder, index.key_of, decoded=route.pipeline.nbytes, is_plain=exact is not None)


def _files(chunks: _Chunks, route: NativeRoute) -> Callable[[Sequence[Place]], FileNames] | None:
    """Return what names the chunks' files, where each is a file that holds the chunk as it is."""
    if not isinstance(chunks, ChunkFiles) or route.pipeline.nbytes > _GATHERED_BYTES:
        return None
    return chunks.files
