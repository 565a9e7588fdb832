"""ChunkIndex: which chunks of a Zarr array are stored, and how large they are."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from voxload.errors import DataError, InternalError
from voxload.files.limits import OBJECTS
from voxload.geometry import Box, chunks_touched
from voxload.readers.chunks.storedchunks import grid_of
from voxload.readers.protocol import ReadCost
from voxload.readers.remote.objects import Facts
from voxload.readers.store import Store
from voxload.readers.zarr.shardindex import ABSENT, Entries, ShardLayout

Place = tuple[int, ...]

_ASKED = 2**14
"""Objects that are asked for one by one, at most, where a folder can be listed."""
_BATCH = 2**12
"""Objects that are asked for at once."""
_KNOWN = 2**16
"""Sizes of chunks that are remembered."""
_SHARD_BYTES = 2**9
"""What is remembered of a shard beside its index."""


class KeyOf(Protocol):
    """Name of the object that holds a chunk."""

    def __call__(self, place: Place, /) -> str:
        """Return the key of the chunk at a place of the chunk grid."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """Pure facts of a Zarr array's storage."""

    outer: Place
    """Extent of one object's chunk or shard, in stored axis order."""
    itemsize: int
    """Bytes of an element."""
    shard: ShardLayout | None
    """How shards are made; None where each object is one chunk."""

    @property
    def unit(self) -> Place:
        """Extent of the smallest part that can be decoded."""
        return self.shard.inner if self.shard else self.outer


class ChunkIndex:
    """Learns sizes of objects and the indices of shards, each once; safe to use from many threads.

    zarr-python hands out the fill value for a chunk whose object is absent or is a folder, and always for an
    inner chunk that its shard lacks. This index is what makes them errors.

    Parameters
    ----------
    store
        Where the objects are.
    key_of
        Their names.
    layout
        How chunks lie in them.
    """

    def __init__(self, store: Store, key_of: KeyOf, layout: Layout) -> None:
        self._store = store
        self.key_of = key_of
        self.layout = layout
        self._lock = threading.Lock()
        self._known: dict[Place, Entries | int] = {}
        self._facts: dict[Place, Facts] = {}
        self._gates: dict[Place, threading.Lock] = {}

    def cost(self, stored: Box) -> ReadCost:
        """Return what the chunks that hold `stored` cost; chunks never written cost nothing.

        Of more than a few objects those that a folder holds are counted, not those that metadata claim. Raises
        DataError where there are more than may be asked for one by one.
        """
        touched = chunks_touched(stored, self.layout.outer)
        if touched.size > _ASKED and self._store.lists:
            return self._listed_cost(stored, touched)
        shard = self.layout.shard
        quick = self._known_cost(touched) if shard is None else self._known_shards_cost(stored, touched, shard)
        if quick is not None:
            return quick
        OBJECTS.check(self._store.locate(""), touched.size, "a box")
        total = ReadCost()
        for some in _batched(self._objects(stored)):
            known = self.look_up(place for place, _ in some)
            for place, part in some:
                total += self._object_cost(place, part, known[place])
        return total

    def _known_cost(self, touched: Box) -> ReadCost | None:
        """Return the same of chunks whose sizes are all known, as those of small boxes mostly are; else None."""
        if touched.size > _ASKED:
            return None
        places = itertools.product(*map(range, touched.start, touched.stop))
        with self._lock:
            sizes = [self._known.get(place) for place in places]
        known = [size for size in sizes if isinstance(size, int)]
        if len(known) < len(sizes):
            return None
        return ReadCost(len(known), sum(known), len(known) * prod(self.layout.unit) * self.layout.itemsize)

    def _known_shards_cost(self, stored: Box, touched: Box, shard: ShardLayout) -> ReadCost | None:
        """Return the same of shards whose indices are all known; else None."""
        inner = chunks_touched(stored, shard.inner)
        count = nbytes = 0
        for place in itertools.product(*map(range, touched.start, touched.stop)):
            entries = self._known.get(place)
            if not isinstance(entries, np.ndarray):
                return None
            corners = [(index * n, n) for index, n in zip(place, shard.grid, strict=True)]
            ends = zip(inner.start, inner.stop, corners, strict=True)
            part = tuple([slice(max(lo - at, 0), min(hi - at, n)) for lo, hi, (at, n) in ends])
            lengths = entries[part][..., 1]
            lengths = lengths[lengths != ABSENT]
            count, nbytes = count + lengths.size, nbytes + int(lengths.sum()) + shard.index_bytes
        return ReadCost(count, nbytes, count * prod(shard.inner) * self.layout.itemsize)

    def _listed_cost(self, stored: Box, touched: Box) -> ReadCost:
        """Return the same by one listing; nothing is remembered."""
        total = ReadCost()
        numbers = re.compile(rf"\d+(?:[./]\d+){{{len(touched.start) - 1}}}$")
        folder = numbers.sub("", self.key_of(touched.start)).rpartition("/")[0]
        for key, size in self._store.walk(folder, depth=len(touched.start) + 1):
            digits = numbers.search(key)
            place = tuple(map(int, re.split(r"[./]", digits[0]))) if digits else ()
            if not digits or self.key_of(place) != key or not touched.contains(_one(place)):
                continue  # metadata, or an object that is no chunk of the box
            found: Entries | int | None = size
            if self.layout.shard is not None:
                found = self._read_index(key, self.layout.shard)[0]
            total += self._object_cost(place, self._part(place, stored), found)
        return total

    def _object_cost(self, place: Place, part: Box, found: Entries | int | None) -> ReadCost:
        """Return what the chunks of one object cost that hold voxels of `part`."""
        decoded, shard = prod(self.layout.unit) * self.layout.itemsize, self.layout.shard
        if found is None:
            return ReadCost()
        if shard is None or isinstance(found, int):
            return ReadCost(1, int(found), decoded)
        lengths = found[self._inner_range(place, part).slices][..., 1]
        lengths = lengths[lengths != ABSENT]
        return ReadCost(lengths.size, int(lengths.sum()) + shard.index_bytes, decoded * lengths.size)

    def table_bytes(self, shape: Place) -> int:
        """Return the memory that knowing where all chunks of an array lie takes; pure."""
        shard = self.layout.shard
        if shard is None:
            return 0
        return prod(grid_of(shape, self.layout.outer)) * (shard.index_bytes + _SHARD_BYTES)

    def first_missing(self, stored: Box) -> tuple[Place, str] | None:
        """Return the first chunk of `stored` that is not there, and its name; None when all are."""
        for some in _batched(self._objects(stored)):
            known = self.look_up(place for place, _ in some)
            for place, part in some:
                found = known[place]
                inner = self._inner_range(place, part)
                if found is None:
                    return self._number(place, inner.start), self.key_of(place)
                if isinstance(found, int):
                    continue
                absent = np.argwhere(found[inner.slices][..., 0] == ABSENT)
                if len(absent):
                    where = tuple(int(i) + first for i, first in zip(absent[0], inner.start, strict=True))
                    return self._number(place, where), f"{self.key_of(place)}, inner chunk {where}"
        return None

    def keys(self, stored: Box) -> list[str]:
        """Return the names of the objects that hold voxels of `stored`, whether or not they are there."""
        touched = chunks_touched(stored, self.layout.outer)
        spans = (range(lo, hi) for lo, hi in zip(touched.start, touched.stop, strict=True))
        return [self.key_of(place) for place in itertools.product(*spans)]

    def read(self, place: Place) -> bytes | None:
        """Return the chunk at a place of the grid of all chunks as stored; None where there is none."""
        where = self._find(place)
        return None if where is None else self._store.read(*where)

    def head(self, place: Place, count: int) -> tuple[bytes, int] | None:
        """Return up to `count` first bytes of a chunk as stored, and how many it has; None where there is none."""
        where = self._find(place)
        if where is None:
            return None
        key, offset, length = where
        return self._store.read(key, offset, min(count, length)), length

    def _find(self, place: Place) -> tuple[str, int, int] | None:
        """Return object, offset and bytes of a chunk; None where there is none."""
        outer, inner = self.divide(place)
        found = self.look_up([outer])[outer]
        if found is None:
            return None
        if isinstance(found, int):
            return self.key_of(outer), 0, found
        offset, length = found[inner].tolist()
        return None if offset == length == ABSENT else (self.key_of(outer), offset, length)

    def name(self, place: Place) -> str:
        """Return the name in the hierarchy of the chunk at a place of the grid of all chunks."""
        outer, inner = self.divide(place)
        return f"{self.key_of(outer)}, inner chunk {inner}" if self.layout.shard else self.key_of(outer)

    def look_up(self, places: Iterable[Place]) -> dict[Place, Entries | int | None]:
        """Return of each object the index, if it is a shard, or its bytes; None of those that are not there.

        Each is asked for once, however many threads want it; all at once where the store takes long to answer.
        """
        wanted = list(dict.fromkeys(places))
        with self._lock:
            unknown = [place for place in wanted if place not in self._known]
        fresh = dict(zip(unknown, self._store.map(self._look_up, unknown), strict=True))
        with self._lock:
            return {place: fresh[place] if place in fresh else self._known[place] for place in wanted}

    def learn(self, place: Place, size: int) -> None:
        """Remember the bytes of a chunk, learnt by reading it."""
        with self._lock:
            self._remember(place, size)

    def _remember(self, place: Place, found: Entries | int, facts: Facts | None = None) -> None:
        if isinstance(found, int) and len(self._known) >= _KNOWN:
            self._known.clear()  # sizes, which can be asked for again
        self._known[place] = found
        if facts is not None:
            self._facts[place] = facts

    def version(self, place: Place) -> str:
        """Return which version of a shard its index was read of; empty where the store does not tell."""
        found = self.facts(place)
        return "" if found is None else found.version

    def facts(self, place: Place) -> Facts | None:
        """Return what was told of a shard when its index was read; None where nothing was read."""
        with self._lock:
            return self._facts.get(place)

    def divide(self, place: Place) -> tuple[Place, Place]:
        """Return the place of the object that holds a chunk, and the chunk's own in it."""
        counts = self.layout.shard.grid if self.layout.shard else (1,) * len(place)
        pairs = [divmod(index, count) for index, count in zip(place, counts, strict=True)]
        return tuple(outer for outer, _ in pairs), tuple(inner for _, inner in pairs)

    def _objects(self, stored: Box) -> Iterator[tuple[Place, Box]]:
        """Yield the place of each object that holds voxels of `stored`, and the part it holds."""
        touched = chunks_touched(stored, self.layout.outer)
        for place in itertools.product(*(range(lo, hi) for lo, hi in zip(touched.start, touched.stop, strict=True))):
            yield place, self._part(place, stored)

    def _part(self, place: Place, stored: Box) -> Box:
        """Return the part of a box that lies in an object."""
        origin = tuple(i * width for i, width in zip(place, self.layout.outer, strict=True))
        part = Box.whole(self.layout.outer).shift(origin).intersect(stored)
        if part is None:
            raise InternalError(f"chunk {place} does not hold voxels of {stored}")
        return part

    def _inner_range(self, place: Place, part: Box) -> Box:
        origin = tuple(i * width for i, width in zip(place, self.layout.outer, strict=True))
        return chunks_touched(part.relative_to(origin), self.layout.unit)

    def _number(self, place: Place, inner: Place) -> Place:
        """Return the place of an inner chunk in the grid of all chunks."""
        counts = self.layout.shard.grid if self.layout.shard else (1,) * len(place)
        return tuple(i * count + within for i, count, within in zip(place, counts, inner, strict=True))

    def _look_up(self, place: Place) -> Entries | int | None:
        """Return a shard's index, or the bytes of an unsharded chunk, or None when there is no object."""
        try:
            return self._found(place)
        except DataError as error:
            kind = "shard" if self.layout.shard else "chunk"
            raise error.within(f"{kind} {place}", remedy="copy or convert it again") from error

    def _found(self, place: Place) -> Entries | int | None:
        with self._lock:
            gate = self._gates.setdefault(place, threading.Lock())
        with gate:
            with self._lock:
                if place in self._known:
                    return self._known[place]
            key, shard = self.key_of(place), self.layout.shard
            found, facts = (self._store.size(key), None) if shard is None else self._read_index(key, shard)
            if found is None:  # not remembered: it may be written later
                return None
            if isinstance(found, int) and not found:
                raise DataError(self._store.locate(key), found="an empty file", expected="a stored chunk")
            with self._lock:
                self._remember(place, found, facts)
                self._gates.pop(place, None)
            return found

    def _read_index(self, key: str, shard: ShardLayout) -> tuple[Entries | None, Facts | None]:
        """Read a shard's index, check that every entry lies inside the object, and say what was told of that."""
        part = self._store.edge(key, shard.index_bytes, at_end=shard.at_end)
        if part is None:
            return None, None
        subject = self._store.locate(key)
        shard.index_offset(part.size, subject)  # refuses an object without room for an index
        facts = Facts.told(subject, part.size, part.version, part.modified)
        return shard.parse(part.data.tobytes(), part.size, subject), facts


def _one(place: Place) -> Box:
    """Return the box of one place."""
    return Box(place, tuple(index + 1 for index in place))


def _batched(objects: Iterator[tuple[Place, Box]]) -> Iterator[list[tuple[Place, Box]]]:
    """Yield some after others, none for ever: metadata may claim any number."""
    while some := list(itertools.islice(objects, _BATCH)):
        yield some
