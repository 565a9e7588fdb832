"""OpenShards: the inner chunks of a sharded array; the shards in use stay open."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.geometry import Box
from voxload.readers.chunks.chunkcache import Identity
from voxload.readers.chunks.chunked import Fetch, Fetched, Mapped
from voxload.readers.chunks.chunkmoves import ListedShards
from voxload.readers.chunks.nativesources import SHARD_COLUMNS, ShardSource
from voxload.readers.generation import is_outdated
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.remote.coalesce import Piece, plan_requests
from voxload.readers.remote.flight import Flight
from voxload.readers.scratch import address, path_of
from voxload.readers.storage.file import FileBytes, reads_directly
from voxload.readers.storage.locality import is_node_local
from voxload.readers.storage.readahead import FileRange, Where, announce_all, fetching, quietly
from voxload.readers.storage.stamp import Stamp
from voxload.readers.zarr.chunkindex import KeyOf
from voxload.readers.zarr.shardindex import ABSENT, Entries, ShardLayout

OPEN_SHARDS = 16
"""Shards that a reader keeps open: those of a block with its halo, but few, as a process has many readers."""
FEW_SHARDS = 64
"""Shards of an array that are listed for each read: as many as the core takes."""
_LISTED = 2**20
"""Shards of an array that are listed for the core, at most: some tens of MiB."""


@dataclass(slots=True)
class _Shard:
    """An open shard and its index, or the promise of them."""

    opening: threading.Lock = field(default_factory=threading.Lock)
    """Held while the shard is being opened, so that this is done once."""
    file: FileBytes | None = None
    """The shard's file, once it is open; stays None where there is none."""
    entries: Entries | None = None
    """Its index; the file's as long as it does not change."""
    users: int = 0
    """Threads that read it now; a shard in use is never closed."""
    told: tuple[npt.NDArray[Any], ...] = ()
    """What the core was told of it by address."""


class OpenShards:
    """Fetches inner chunks; reads each shard's index once. Safe to use from many threads at once.

    Parameters
    ----------
    folder
        The hierarchy's folder.
    key_of
        Names of the shards' files below it.
    layout
        How chunks lie in a shard.
    exact
        Bytes of every inner chunk where they are stored as they are, and so may be looks into a map of the shard, see
        `FileBytes`; None where they are compressed.
    capacity
        Shards kept open.
    """

    def __init__(
        self, folder: str, key_of: KeyOf, layout: ShardLayout, *, exact: int | None, capacity: int = OPEN_SHARDS
    ) -> None:
        self._folder = folder.rstrip("/")
        self._key_of = key_of
        self._layout = layout
        self._exact = exact
        self._capacity = capacity
        self._lock = threading.Lock()
        self._shards: OrderedDict[Place, _Shard] = OrderedDict()
        self._source: ShardSource | None = None

    def native_source(self, outer: Place, nbytes: int) -> ShardSource | None:
        """Return what the core reads inner chunks of `nbytes` by; None where the shards are too many to be listed.

        `outer` are the shards along each axis. Called once, before anything is read.
        """
        if prod(outer) > _LISTED:
            return None
        shards = np.zeros((prod(outer), SHARD_COLUMNS), np.int64)
        shards[:, 0] = -1
        self._source = ShardSource(shards, self._layout.grid, outer, nbytes)
        return self._source

    def holding(self, boxes: Sequence[Box]) -> list[Place] | None:
        """Return the shards that hold boxes of inner chunks; None where they are too many to be open at once."""
        grid = self._layout.grid
        found: dict[Place, None] = {}
        for box in boxes:
            ends = zip(box.start, box.stop, grid, strict=True)
            spans = [range(lo // count, -(-hi // count)) for lo, hi, count in ends]
            if prod(map(len, spans)) > self._capacity:
                return None
            found.update(dict.fromkeys(itertools.product(*spans)))
        return list(found) if len(found) <= self._capacity else None

    @contextmanager
    def hold(self, outers: Sequence[Place]) -> Iterator[bool]:
        """Keep shards open meanwhile; yields whether all are there."""
        with ExitStack() as held:
            are_there = True
            for outer in outers:
                shard = self._acquire(outer)
                held.callback(self._release, outer, shard)
                are_there &= shard.file is not None
            yield are_there

    def list_of(self, outers: Sequence[Place]) -> ListedShards | None:
        """Return what is known of the shards that are named.

        None where the array has more than `FEW_SHARDS`, or one of them is not open or may change unseen. Descriptors
        stand for no file: who reads by the list opens files anew.
        """
        source = self._source
        if source is None or len(source.shards) > FEW_SHARDS:
            return None
        rows: dict[int, tuple[npt.NDArray[np.int64], tuple[object, ...]]] = {}
        with self._lock:
            for outer in outers:
                number, shard = int(np.ravel_multi_index(outer, source.outer)), self._shards.get(outer)
                if shard is None or shard.file is None or not shard.told or not shard.file.stamp.is_settled:
                    return None
                rows[number] = source.shards[number].copy(), shard.told
        extents = tuple([width * count for width, count in zip(self._layout.inner, self._layout.grid, strict=True)])
        return ListedShards(extents, source.outer, rows)

    def _tell(self, outer: Place, shard: _Shard, entries: Entries) -> None:
        """Tell the core of a shard that was opened; its row is complete before its descriptor shows."""
        source = self._source
        if source is None or shard.file is None:
            return
        shard.told = (np.ascontiguousarray(entries), shard.file.stamp.numbers(), path_of(shard.file.path))
        row = source.shards[np.ravel_multi_index(outer, source.outer)]
        row[1:] = (shard.file.size, *map(address, shard.told))
        row[0] = shard.file.descriptor

    def _close(self, outer: Place, shard: _Shard) -> None:
        """Close a shard that nobody uses."""
        if shard.file is None:
            return
        if self._source is not None:
            self._source.shards[np.ravel_multi_index(outer, self._source.outer), 0] = -1
        shard.file.close()

    def fetch(self, place: Place) -> Fetched | None:
        """Return an inner chunk as stored, or None where its shard lacks it or there is no shard."""
        outer, inner = self._split(place)
        shard = self._acquire(outer)
        try:
            if shard.file is None or shard.entries is None:
                return None
            offset, length = shard.entries[inner].tolist()
            # What a map hands out may outlive the shard: the map goes with the last array that looks into it.
            return None if offset == length == ABSENT else Fetched(shard.file.read(offset, length))
        finally:
            self._release(outer, shard)

    @contextmanager
    def expect(self, places: Sequence[Place]) -> Iterator[Fetch]:
        """Let chunks come ahead of their use: announced where they lie on this node, else by many requests at once."""
        with self._held() as where:
            if is_node_local(self._folder) and not reads_directly():
                yield fetching(places, where, self.fetch)
                return
            planned = {place: at for place in places if (at := quietly(where, place)) is not None}
            with self._flight(planned) as flight:
                yield lambda place: Fetched(flight.taken(place)) if place in planned else self.fetch(place)

    @contextmanager
    def _held(self) -> Iterator[Where]:
        """Yield what tells where chunks lie; the shards that it was asked for stay open meanwhile."""
        held: dict[Place, _Shard] = {}

        def where(place: Place) -> FileRange | None:
            outer, inner = self._split(place)
            shard = held.get(outer)
            if shard is None:
                shard = self._acquire(outer)
                if held.setdefault(outer, shard) is not shard:  # another thread was faster
                    self._release(outer, shard)
            if shard.file is None or shard.entries is None:
                return None
            offset, length = shard.entries[inner].tolist()
            return None if offset == length == ABSENT else FileRange(shard.file, offset, length)

        try:
            yield where
        finally:
            for outer, shard in held.items():
                self._release(outer, shard)

    def _flight(self, planned: dict[Place, FileRange]) -> Flight:
        """Return the requests for chunks of shards that stay open."""
        files = {at.file.path: at.file for at in planned.values()}
        pieces = [Piece(place, at.file.path, at.offset, at.offset + at.length) for place, at in planned.items()]
        return Flight(plan_requests(pieces), lambda request: files[request.key].fresh(request.start, request.size))

    def identify(self, places: Sequence[Place]) -> list[Identity | None]:
        """Tell inner chunks from all others; not those of shards that were written to just now, or are not there."""
        divided = [self._split(place) for place in places]
        stamps = {outer: self._stamp(outer) for outer in {outer for outer, _ in divided}}
        found = [(stamps[outer], inner) for outer, inner in divided]
        return [Identity(stamp, inner) if stamp and stamp.is_settled else None for stamp, inner in found]

    def _stamp(self, outer: Place) -> Stamp | None:
        """Return the stamp of a shard as it is read now, or None where there is none."""
        shard = self._acquire(outer)
        try:
            return None if shard.file is None else shard.file.stamp
        finally:
            self._release(outer, shard)

    def locate(self, places: Sequence[Place]) -> Mapped | None:
        """Return where inner chunks that are stored as they are lie in the maps of their shards."""
        addresses = np.zeros(len(places), np.uint64)
        outer, inner = np.divmod(np.array(places, np.intp), np.array(self._layout.grid, np.intp))
        owners: list[object] = []
        left = np.arange(len(places))
        while left.size:  # shard by shard; a block touches few
            place = tuple(outer[left[0]].tolist())
            is_inside = (outer[left] == place).all(1)
            chosen, left = left[is_inside], left[~is_inside]
            found = self._in_map(place, inner[chosen])
            if found is None:
                return None
            addresses[chosen] = found.addresses
            owners += found.owners
        with self._held() as where:
            announce_all(places, where)
        return Mapped(addresses, owners)

    def _in_map(self, outer: Place, inner: npt.NDArray[np.intp]) -> Mapped | None:
        """Return where some inner chunks of one shard lie."""
        shard = self._acquire(outer)
        try:
            if shard.file is None or shard.entries is None:
                return Mapped(np.zeros(len(inner), np.uint64), ())
            whole, entries = shard.file.map, shard.entries[tuple(inner.T)]
            is_there = (entries != ABSENT).any(1)
            if whole is None or (entries[is_there, 1] != self._exact).any():
                return None
            return Mapped(np.where(is_there, entries[:, 0] + np.uint64(address(whole)), np.uint64(0)), (whole,))
        finally:
            self._release(outer, shard)

    def fetch_part(self, place: Place, start: int, stop: int) -> Fetched | None:  # noqa: ARG002 - a map has it all
        """Return an inner chunk, whole: most come as a look into a map, which costs nothing."""
        return self.fetch(place)

    def name(self, place: Place) -> str:
        """Return a chunk's name in the hierarchy; of a shard that is not there, the shard's."""
        outer, inner = self._split(place)
        shard = self._acquire(outer)
        is_there = shard.file is not None
        self._release(outer, shard)
        key = self._key_of(outer)
        return f"{key}, inner chunk {inner}" if is_there else key

    def check_unchanged(self) -> None:
        """Refuse shards that were written to since their index was read."""
        with self._open_files() as files:
            for file in files:
                file.check_unchanged()

    def is_outdated(self) -> bool:
        """Tell whether shards that are open should be opened anew; see `Stamp.is_outdated`."""
        with self._open_files() as files:
            return is_outdated(file.stamp for file in files)

    @contextmanager
    def _open_files(self) -> Iterator[list[FileBytes]]:
        """Yield the shards that are open, and stay so meanwhile."""
        with self._lock:
            held = list(self._shards.items())
            for _, shard in held:
                shard.users += 1
        try:
            yield [shard.file for _, shard in held if shard.file is not None]
        finally:
            for outer, shard in held:
                self._release(outer, shard)

    def close(self) -> None:
        """Close all shards; only when no thread reads."""
        with self._lock:
            shards = list(self._shards.items())
            self._shards.clear()
        for outer, shard in shards:
            self._close(outer, shard)

    def _split(self, place: Place) -> tuple[Place, Place]:
        """Return the place of the chunk's shard, and the chunk's own in it."""
        grid = self._layout.grid
        return (
            tuple([index // count for index, count in zip(place, grid, strict=True)]),
            tuple([index % count for index, count in zip(place, grid, strict=True)]),
        )

    def _acquire(self, outer: Place) -> _Shard:
        """Return a shard, opened if there is one; it stays open at least until `_release`."""
        with self._lock:
            shard = self._shards.get(outer)
            if shard is None:
                shard = self._shards[outer] = _Shard()
            self._shards.move_to_end(outer)
            shard.users += 1
        if shard.entries is None:
            try:
                with shard.opening:
                    if shard.entries is None:
                        self._open(shard, outer)
            except BaseException:
                self._release(outer, shard)
                raise
        return shard

    def _open(self, shard: _Shard, outer: Place) -> None:
        """Open a shard and read its index; leaves it as it is where there is no such file."""
        path = f"{self._folder}/{self._key_of(outer)}"
        try:
            file = FileBytes(path, may_map=self._exact is not None)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            raw = file.read(self._layout.index_offset(file.size, path), self._layout.index_bytes)
            entries = self._layout.parse(raw.tobytes(), file.size, path)
        except BaseException:
            file.close()
            raise
        shard.file = file
        self._tell(outer, shard, entries)
        shard.entries = entries  # last: other threads take it for the sign that all is there

    def _release(self, outer: Place, shard: _Shard) -> None:
        """Count one user less, and close the shards that nobody uses and that are too many."""
        with self._lock:
            shard.users -= 1
            if shard.file is None and not shard.users and self._shards.get(outer) is shard:
                del self._shards[outer]
            surplus = len(self._shards) - self._capacity
            if surplus <= 0:  # nearly always
                return
            idle = [place for place, other in self._shards.items() if not other.users][:surplus]
            for place in idle:  # while nobody can open it again: its row is one for both
                self._close(place, self._shards.pop(place))
