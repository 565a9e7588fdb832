"""ChunkCache: decoded chunks that a process keeps for its next reads, by the identity of what is stored.

One read decodes each chunk once by itself. What a cache adds holds between reads: a block and the same block with its
halo, the blocks of neighbouring ranks, crops at random. Chunks are told apart by what they were stored as, not by who
reads them, so that readers of one file share them, and a file that was written anew shares nothing with what it was.

Rules:

1. The buffers of all entries, those in use included, and a lump sum for each entry never exceed the budget. What
   does not fit while others are in use is decoded without the cache.
2. An entry in use is never evicted; the buffer of an evicted one serves the next entry, for fresh pages cost as much
   as a copy into them.
3. A chunk is loaded by one read at a time. A read waits for another one only while it holds nothing that another one
   could wait for, so no two reads wait for each other.
4. Errors are not kept: who waited for a chunk that could not be loaded loads it itself.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from voxload.core.library import function
from voxload.errors import UsageError
from voxload.readers.decode.codecs import Pipeline
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.scratch import Bytes
from voxload.readers.storage.stamp import Stamp


@dataclass(frozen=True, slots=True)
class Identity:
    """A chunk as stored: two that are equal hold the same bytes, whichever reader asks."""

    source: Stamp | tuple[str, str]
    """The file that holds it, as it was; of an object behind a URL, its name and its strong entity tag."""
    part: Hashable = ()
    """Which of the chunks in there; nothing where the file is one chunk."""
    checksum: int | None = None
    """What its bytes are compared with before they are decoded; None where they are compared with nothing."""


Identify = Callable[[Sequence[Place]], Sequence[Identity | None]]
"""Tells chunks from all others; None of those of which nothing tells that they were not written anew."""


ENTRY_BYTES = 2**10
"""What an entry counts beside its buffer: the objects of its key, its place in tables, the buffer's own head."""


class Key:
    """A chunk as decoded: what was stored and how it is decoded. Its hash is made once: each use of a chunk asks often.

    Parameters
    ----------
    pipeline
        What decodes it.
    identity
        What is stored.
    """

    __slots__ = ("_hash", "_pipeline", "identity")

    def __init__(self, pipeline: Pipeline, identity: Identity) -> None:
        self.identity = identity
        self._pipeline = pipeline
        self._hash = hash((pipeline, identity))

    def __hash__(self) -> int:
        """Return the hash."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Tell whether both are the same bytes."""
        return isinstance(other, Key) and (self.identity, self._pipeline) == (other.identity, other._pipeline)


@dataclass(slots=True, eq=False)
class Chunk:
    """A decoded chunk in a cache."""

    data: Bytes
    """Its bytes; not to be changed."""
    is_shuffled: bool
    """Whether the bytes of its elements still lie in planes."""
    users: int = 0
    """Claims that hold it."""


@dataclass(slots=True, eq=False)
class Claim:
    """What one read holds of a cache."""

    held: dict[Key, Chunk] = field(default_factory=dict)
    """Chunks that are there, and stay until they are dropped."""
    owned: set[Key] = field(default_factory=set)
    """Chunks that are not there, and that others expect of this read."""
    awaited: dict[Key, threading.Event] = field(default_factory=dict)
    """Chunks that another read is loading, and what is set when it has, or has given up."""


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """What a cache has done since it was made, and what it holds."""

    hits: int
    """Chunks handed out without decoding them."""
    misses: int
    """Chunks that a read had to decode, be it that there was no room for them."""
    evictions: int
    """Chunks that made room for others."""
    chunks: int
    """Chunks that it holds now."""
    nbytes: int
    """Bytes that count against the budget now."""


class ChunkCache:
    """Keeps the chunks last used, within a budget; safe to use from many threads at once.

    Parameters
    ----------
    budget
        Most bytes of memory, at least 1.

    Raises
    ------
    UsageError
        When the budget is not positive.
    """

    def __init__(self, budget: int) -> None:
        if budget < 1:
            raise UsageError("budget", found=str(budget), expected="bytes, 1 or more")
        self.budget = budget
        self._lock = threading.Lock()
        self._chunks: OrderedDict[Key, Chunk] = OrderedDict()
        self._loading: dict[Key, threading.Event | None] = {}  # an event only where somebody waits
        self._spare: list[Bytes] = []
        self._nbytes = 0  # of all entries and spare buffers
        self._busy = 0  # of those in use among them
        self._hits = self._misses = self._evictions = 0

    def figures(self) -> CacheFigures:
        """Return what the cache has done and holds."""
        with self._lock:
            return CacheFigures(self._hits, self._misses, self._evictions, len(self._chunks), self._nbytes)

    @contextmanager
    def claimed(self, keys: Iterable[Key]) -> Iterator[Claim]:
        """Claim chunks, each key once; yields what is there, what is to be loaded, and what others are loading.

        Of the owned ones each is loaded with `load` or left with `give_up`; the rest is given up at the end.
        """
        claim = Claim()
        try:
            with self._lock:
                for key in keys:
                    self._ask(claim, key)
                self._hits += len(claim.held)
                self._misses += len(claim.owned)
            yield claim
        finally:
            for key in list(claim.owned):
                self.give_up(claim, key)
            for key in list(claim.held):
                self.drop(claim, key)

    def load(self, claim: Claim, key: Key, nbytes: int, *, fill: Callable[[Bytes], bool]) -> Chunk | None:
        """Make an owned chunk a held one and return it; None where there is no room for it, and then it stays owned.

        Parameters
        ----------
        claim
            What owns the chunk.
        key
            Which it is.
        nbytes
            Bytes of the chunk.
        fill
            Decodes it into the given bytes, and returns whether they are still shuffled. What it raises is raised.
        """
        data = self._reserve(nbytes)
        if data is None:
            return None
        try:
            chunk = Chunk(data, fill(data), users=1)
        except BaseException:
            with self._lock:
                self._busy -= _cost(data)
                self._spare.append(data)
            raise
        with self._lock:
            claim.held[key] = self._chunks[key] = chunk
            self._settle(claim, key)
        return chunk

    def give_up(self, claim: Claim, key: Key) -> None:
        """Leave an owned chunk to whoever wants it next."""
        with self._lock:
            self._settle(claim, key)

    def drop(self, claim: Claim, key: Key) -> None:
        """Let go of a held chunk: its bytes may be others' from now on."""
        with self._lock:
            chunk = claim.held.pop(key)
            chunk.users -= 1
            if not chunk.users:
                self._busy -= _cost(chunk.data)

    def pass_by(self, count: int) -> None:
        """Count chunks that are decoded without the cache because another read is loading them again."""
        with self._lock:
            self._misses += count

    def _ask(self, claim: Claim, key: Key) -> None:
        chunk = self._chunks.get(key)
        if chunk is not None:
            if not chunk.users:
                self._busy += _cost(chunk.data)
            chunk.users += 1
            claim.held[key] = chunk
            self._chunks.move_to_end(key)
        elif key in self._loading:
            event = self._loading[key]
            if event is None:
                event = self._loading[key] = threading.Event()
            claim.awaited[key] = event
        else:
            claim.owned.add(key)  # first: what is in the table must be given up, whatever comes between
            self._loading[key] = None

    def _settle(self, claim: Claim, key: Key) -> None:
        """Tell those who wait that an owned chunk is loaded, or will not be."""
        claim.owned.discard(key)
        event = self._loading.pop(key, None)
        if event is not None:
            event.set()

    def _reserve(self, nbytes: int) -> Bytes | None:
        """Return a buffer that counts as in use; None where what is in use leaves no room for it."""
        cost = nbytes + ENTRY_BYTES
        with self._lock:
            if self._busy + cost > self.budget:
                return None
            data = self._reused(nbytes, cost)
            if data is None:
                data = np.empty(nbytes, np.uint8)
                self._nbytes += cost
            self._busy += cost
            return data

    def _reused(self, nbytes: int, cost: int) -> Bytes | None:
        """Return a buffer of this size that nobody uses, or None once there is room for a new one."""
        for place, spare in enumerate(self._spare):
            if spare.size == nbytes:
                return self._spare.pop(place)
        while self._nbytes + cost > self.budget:
            freed = self._spare.pop() if self._spare else self._evicted()
            if freed.size == nbytes:
                return freed
            self._nbytes -= _cost(freed)
        return None

    def _evicted(self) -> Bytes:
        """Take out the chunk whose last use is longest ago; there is one that nobody uses."""
        key = next(key for key, chunk in self._chunks.items() if not chunk.users)
        self._evictions += 1
        return self._chunks.pop(key).data


def _cost(data: Bytes) -> int:
    return data.size + ENTRY_BYTES


_cache: ChunkCache | None = None
KEPT_BYTES = 2**25
"""Decoded chunks that the core keeps where no cache was asked for: what comes again within so many bytes."""
_kept = KEPT_BYTES
_limit_kept = function("limit_kept_chunks", "n")
_limit_kept(_kept)


def chunk_cache() -> ChunkCache | None:
    """Return the process's cache; None when there is none."""
    return _cache


def set_chunk_cache(budget: int) -> None:
    """Keep decoded chunks between reads in at most `budget` bytes; 0, the default, keeps none. For the whole process.

    Each call begins with an empty cache. The budget is each process's own: a forked child begins with an empty cache
    of the same budget. Reads under way end with the cache that they began with, whose memory is then released.

    Raises
    ------
    UsageError
        When the budget is negative.
    """
    global _cache  # noqa: PLW0603 - the cache belongs to the process
    _cache = None if budget == 0 else ChunkCache(budget)
    _limit_kept(_kept if budget == 0 else 0)


def kept_chunks() -> int:
    """Return the bytes of decoded chunks that the core may keep; see `set_kept_chunks`."""
    return _kept


def set_kept_chunks(budget: int) -> None:
    """Keep decoded chunks that come again in at most `budget` bytes, 32 MiB by default; 0 keeps none. For the process.

    A chunk is kept when it is decoded a second time while no more than `budget` bytes of others were decoded since.
    This is for chunks that lie on this node and that the core decodes; it counts while `set_chunk_cache` keeps none.
    Each call begins with nothing kept, and so does a forked child.

    Raises
    ------
    UsageError
        When the budget is negative.
    """
    global _kept  # noqa: PLW0603 - what is kept belongs to the process
    if budget < 0:
        raise UsageError("budget", found=str(budget), expected="bytes, 0 or more")
    _kept = budget
    set_chunk_cache(0 if _cache is None else _cache.budget)


def forget_chunks() -> None:
    """Begin anew with nothing kept, within the same budget; as a forked child does, where what others held stays held.

    Safe while others read: chunks in use go with their reads.
    """
    set_chunk_cache(0 if _cache is None else _cache.budget)


os.register_at_fork(after_in_child=forget_chunks)
