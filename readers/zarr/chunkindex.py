"""ChunkIndex: which chunks of a Zarr array are stored, and how large they are."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError, InternalError
from voxload.geometry import Box, chunks_touched
from voxload.readers.protocol import ReadCost
from voxload.readers.store import Store

_ABSENT = np.uint64(2**64 - 1)
"""Offset and length of an inner chunk that was never written (Zarr v3, sharding-indexed codec 1.0)."""
_ENTRY_BYTES = 16
_CRC_BYTES = 4

Place = tuple[int, ...]


class KeyOf(Protocol):
    """Name of the object that holds a chunk."""

    def __call__(self, place: Place, /) -> str:
        """Return the key of the chunk at a place of the chunk grid."""
        ...


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """How inner chunks lie in a shard."""

    inner: Place
    """Extent of an inner chunk, in stored axis order."""
    at_end: bool
    """Whether the index stands at the end of the shard rather than at its start."""
    has_checksum: bool
    """Whether the index ends in a crc32c."""


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
    """

    def __init__(self, store: Store, key_of: KeyOf, layout: Layout) -> None:
        self._store = store
        self._key_of = key_of
        self.layout = layout
        self._lock = threading.Lock()
        self._known: dict[Place, npt.NDArray[np.uint64] | int | None] = {}

    def cost(self, stored: Box) -> ReadCost:
        """Return what the chunks that hold `stored` cost; chunks never written cost nothing."""
        shard = self.layout.shard
        decoded = prod(self.layout.unit) * self.layout.itemsize
        total = ReadCost()
        for place, part in self._objects(stored):
            found = self._look_up(place)
            if found is None:
                continue
            if shard is None or isinstance(found, int):
                total += ReadCost(1, int(found), decoded)
                continue
            lengths = found[self._inner_range(place, part).slices][..., 1]
            lengths = lengths[lengths != _ABSENT]
            total += ReadCost(lengths.size, int(lengths.sum()) + self._index_bytes(shard), decoded * lengths.size)
        return total

    def first_missing(self, stored: Box) -> str | None:
        """Return the name of the first object or inner chunk of `stored` that is not there, or None."""
        for place, part in self._objects(stored):
            found = self._look_up(place)
            if found is None:
                return self._key_of(place)
            if isinstance(found, int):
                continue
            inner = self._inner_range(place, part)
            absent = np.argwhere(found[inner.slices][..., 0] == _ABSENT)
            if len(absent):
                where = tuple(int(i) + first for i, first in zip(absent[0], inner.start, strict=True))
                return f"{self._key_of(place)}, inner chunk {where}"
        return None

    def _objects(self, stored: Box) -> Iterator[tuple[Place, Box]]:
        """Yield the place of each object that holds voxels of `stored`, and the part it holds."""
        touched = chunks_touched(stored, self.layout.outer)
        for place in itertools.product(*(range(lo, hi) for lo, hi in zip(touched.start, touched.stop, strict=True))):
            origin = tuple(i * width for i, width in zip(place, self.layout.outer, strict=True))
            part = Box.whole(self.layout.outer).shift(origin).intersect(stored)
            if part is None:
                raise InternalError(f"chunk {place} does not hold voxels of {stored}")
            yield place, part

    def _inner_range(self, place: Place, part: Box) -> Box:
        origin = tuple(i * width for i, width in zip(place, self.layout.outer, strict=True))
        return chunks_touched(part.relative_to(origin), self.layout.unit)

    def _look_up(self, place: Place) -> npt.NDArray[np.uint64] | int | None:
        """Return a shard's index, or the bytes of an unsharded chunk, or None when there is no object."""
        with self._lock:
            if place in self._known:
                return self._known[place]
        key = self._key_of(place)
        size = self._store.size(key)
        if size == 0:
            subject = self._store.locate(key)
            raise DataError(
                subject, found="an empty file", expected="a stored chunk", remedy="copy or convert it again"
            )
        found = size if size is None or self.layout.shard is None else self._read_index(key, size, self.layout.shard)
        with self._lock:
            self._known[place] = found
        return found

    def _index_bytes(self, shard: ShardLayout) -> int:
        count = prod(width // inner for width, inner in zip(self.layout.outer, shard.inner, strict=True))
        return count * _ENTRY_BYTES + (_CRC_BYTES if shard.has_checksum else 0)

    def _read_index(self, key: str, size: int, shard: ShardLayout) -> npt.NDArray[np.uint64]:
        """Read a shard's index and check that every entry lies inside the object."""
        length = self._index_bytes(shard)
        if size < length:
            raise DataError(
                self._store.locate(key), found=f"{size} bytes", expected=f"at least {length} for a shard's index"
            )
        raw = self._store.read(key, size - length if shard.at_end else 0, length)
        grid = tuple(width // inner for width, inner in zip(self.layout.outer, shard.inner, strict=True))
        entries = np.frombuffer(raw, dtype="<u8", count=2 * prod(grid)).reshape(*grid, 2).astype(np.uint64)
        offsets, lengths = entries[..., 0], entries[..., 1]
        stored = offsets != _ABSENT
        # No sum of two entries: a damaged index may hold numbers whose sum wraps around.
        inside = (offsets <= np.uint64(size)) & (lengths <= np.uint64(size) - np.minimum(offsets, np.uint64(size)))
        if not bool(np.all(inside[stored])):
            raise DataError(
                self._store.locate(key),
                found="a shard index that points outside the shard",
                expected=f"entries within {size} bytes",
                remedy="the shard is truncated or damaged: copy or convert it again",
            )
        return entries
