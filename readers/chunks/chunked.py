"""Chunked reads: the team that fetches, decodes and pastes the chunks that a read touches.

The hot path is one call of ``paste_chunk`` a chunk. A chunk of 64^3 decodes in a few hundred microseconds, so where
its parts go is planned before, for all chunks at once. Chunks that lie in memory as they are need no Python at all:
a thread copies a whole range of the plan.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError
from voxload.geometry import Box, split
from voxload.readers.chunks.chunkcache import Chunk, ChunkCache, Claim, Identify, Key, chunk_cache
from voxload.readers.chunks.nativereads import NativeReads
from voxload.readers.decode.codecs import Pipeline
from voxload.readers.pasting.filekernels import paste_files, plan_jobs
from voxload.readers.pasting.kernels import BOX, FIRST, STOP
from voxload.readers.pasting.pasteplan import ChunkShape, Parts, Place, Wanted, plan_parts
from voxload.readers.pasting.paster import Copier, Paster, paster
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes, scratch
from voxload.readers.team import team

_SHARED_BYTES = 2**22
"""Undecoded copies smaller than this are done before a helper has woken up."""
_REMEDY = "copy or convert the file again"
_FILES = 4
"""Files that a thread reads before it takes the next few: enough that taking them costs nothing."""
_SHARE_BYTES = 2**20
"""Copies are parted among threads into pieces of about this size."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A chunk as stored."""

    data: Bytes
    """Its bytes: this thread's scratch, or a look into a map."""
    mask: int = 0
    """Filters that it was stored without."""


Fetch = Callable[[Place], Fetched | None]
"""Returns a chunk as stored, or None where it was never written; called from many threads at once."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """Where chunks lie in memory."""

    addresses: npt.NDArray[np.uint64]
    """Of each chunk's first byte; 0 where it was never written."""
    owners: Sequence[object]
    """What keeps the memory valid for as long as it lives."""


@dataclass(frozen=True, slots=True)
class FileNames:
    """Names of files, as the C library takes them."""

    data: Bytes
    """All names, each ended by a zero byte."""
    starts: npt.NDArray[np.uint64]
    """Where each begins."""


@dataclass(frozen=True, slots=True)
class ChunkedVolume:
    """The chunks of one volume, whatever file holds them."""

    subject: str
    """What error messages are about."""
    shape: ChunkShape
    """How elements lie in a decoded chunk."""
    pipeline: Pipeline
    """How a chunk is decoded."""
    fetch: Fetch
    """Where chunks come from."""
    fetch_part: Callable[[Place, int, int], Fetched | None] | None = None
    """The same for chunks stored as they are, of which only the bytes from one place to another are wanted: what
    comes is as long as the chunk, and its other bytes may be anything."""
    expect: Callable[[Sequence[Place]], AbstractContextManager[Fetch]] | None = None
    """Told once a read of all its chunks, in the order of their use, before the first is wanted; gives the `fetch` of
    that read, and is left when the read is over, whether it failed or not. For sources that fetch ahead."""
    locate: Callable[[Sequence[Place]], Mapped | None] | None = None
    """The same, all at once, for chunks that lie in memory as they are decoded. None when one of them is not as it
    should be: `fetch` then says which."""
    files: Callable[[Sequence[Place]], FileNames] | None = None
    """Names chunks of which each is a file of its own, as long as it is decoded. `fetch` is then asked for those that
    cannot be read as such."""
    identify: Identify | None = None
    """Tells chunks from all others, so that they may be kept between reads."""
    native: Callable[[np.dtype[Any]], NativeReads | None] | None = None
    """Gives what reads boxes as a type by one call; None where chunks must be fetched one by one."""

    def read(self, box: Box, view: Volume, *, fill: Callable[[Volume], None]) -> None:
        """Fill `view`, in stored axis order, with `box`; see `read_all`."""
        self.read_all([Wanted(box, view)], fill=fill)

    def read_all(self, wanted: Sequence[Wanted], *, fill: Callable[[Volume], None]) -> None:
        """Fill the view of each box; a chunk that several boxes want is fetched and decoded once.

        `fill` gives the voxels of chunks never written.

        Raises
        ------
        DataError
            Naming the chunk, when one cannot be decoded.
        UsageError
            When a view has another shape than its box, or strides that the kernels cannot follow.
        """
        native = self.native(wanted[0].view.dtype) if self.native and chunk_cache() is None else None
        left = None if native is None else native.read(wanted)
        if native is not None and left is None:
            return
        parts = plan_parts(self.shape, wanted)
        read = _Read(self, wanted, parts, fill, paster(self.shape, wanted[0].view.dtype))
        nbytes = sum(one.view.nbytes for one in wanted)
        is_shared = nbytes >= _SHARED_BYTES or bool(self.pipeline.steps)
        mapped = self._located(parts.places)
        if mapped is not None:
            read.copy(mapped, -(-nbytes // _SHARE_BYTES) if is_shared else 1)
            return
        numbers: Sequence[int] = range(len(parts.places))
        places = parts.places
        if native is not None and left is not None:  # the careful way fills, or finds the words for what is wrong
            numbers = [number for number, place in enumerate(places) if left(place)]
            places = [places[number] for number in numbers]
        cache = chunk_cache()
        if cache is not None and self.identify is not None and self.pipeline.steps:
            numbers = _CachedRead(read, cache, self.identify).run()
            if not numbers:
                return
            places = [parts.places[number] for number in numbers]
        with self.ahead(places) as fetch:
            if self.files is not None and isinstance(read.paster, Copier):
                numbers = read.gather(self.files(parts.places), _FILES if is_shared else len(numbers))
            paste_chunk = read.pasting(fetch)
            if is_shared:
                team().run(paste_chunk, numbers)
            else:
                for number in numbers:
                    paste_chunk(number)

    def ahead(self, places: Sequence[Place]) -> AbstractContextManager[Fetch]:
        """Return what gives the `fetch` of a read of the chunks at `places`."""
        return self.expect(places) if self.expect and places else nullcontext(self.fetch)

    def _located(self, places: Sequence[Place]) -> Mapped | None:
        """Return where chunks lie in memory; None when they must be fetched, be it to learn what is wrong."""
        try:
            return self.locate(places) if self.locate else None
        except DataError:
            return None


@dataclass(frozen=True, slots=True)
class _Read:
    """One read under way."""

    volume: ChunkedVolume
    wanted: Sequence[Wanted]
    parts: Parts
    fill: Callable[[Volume], None]
    paster: Paster

    def pasting(self, fetch: Fetch) -> Callable[[int], None]:
        """Return the function that does one chunk, by its number in the plan."""
        volume = self.volume
        table, bounds, places, spans = self.parts.table, self.parts.bounds, self.parts.places, self.parts.spans
        fetch_part, decode = volume.fetch_part, volume.pipeline.decode
        paste = self.paster.paste

        def paste_chunk(number: int) -> None:
            place = places[number]
            try:
                fetched = fetch_part(place, *spans[number]) if fetch_part else fetch(place)
                if fetched is None:
                    self._fill(number)
                    return
                data, is_shuffled = decode(fetched.data, mask=fetched.mask, span=spans[number])
            except DataError as error:
                raise self.failed(number, error) from error
            paste(data, table, (bounds[number], bounds[number + 1]), is_shuffled=is_shuffled)

        return paste_chunk

    def failed(self, number: int, error: DataError) -> DataError:
        """Return the error of a chunk, with its name."""
        return error.within(f"{self.volume.subject}, chunk {self.parts.places[number]}", remedy=_REMEDY)

    def paste(self, number: int, data: Bytes, *, is_shuffled: bool) -> None:
        """Paste what is wanted of a decoded chunk."""
        bounds = self.parts.bounds
        self.paster.paste(data, self.parts.table, (bounds[number], bounds[number + 1]), is_shuffled=is_shuffled)

    def copy(self, mapped: Mapped, shares: int) -> None:
        """Paste chunks that lie in memory, in so many shares."""
        table, starts = self.parts.table, mapped.addresses
        if len(table) != len(starts):
            starts = np.repeat(starts, np.diff(self.parts.bounds))
        table[:, FIRST] += starts
        table[:, STOP] += starts
        if not mapped.addresses.all():
            for number in np.flatnonzero(mapped.addresses == 0).tolist():
                self._fill(number)
            table = table[starts != 0]
        shares = min(shares, len(table))
        if shares < 2:
            self.paster.paste_mapped(table, (0, len(table)))
            return

        def paste_rows(share: tuple[int, int]) -> None:
            self.paster.paste_mapped(table, share)

        team().run(paste_rows, list(itertools.pairwise(split(len(table), shares))))

    def gather(self, names: FileNames, most: int) -> list[int]:
        """Read and paste chunks that are files, so `most` at once; return the numbers of those that are not so."""
        jobs = plan_jobs(names.starts, self.parts.spans, self.parts.bounds)
        done = np.zeros(len(jobs), np.uint8)
        table, width = self.parts.table, self.volume.shape.itemsize
        is_swapped = self.volume.shape.is_swapped and width > 1
        nbytes = self.volume.pipeline.nbytes

        def paste_some(first: int) -> None:
            some, chunk = slice(first, first + most), scratch.stored(nbytes)
            paste_files(names.data, jobs[some], table, chunk, width, is_swapped=is_swapped, done=done[some])

        team().run(paste_some, range(0, len(jobs), most))
        return np.flatnonzero(done == 0).tolist()

    def _fill(self, number: int) -> None:
        """Let the caller fill what is wanted of a chunk that was never written."""
        place, extents = self.parts.places[number], self.volume.shape.extents
        chunk = Box.whole(extents).shift([index * extent for index, extent in zip(place, extents, strict=True)])
        for row in range(self.parts.bounds[number], self.parts.bounds[number + 1]):
            one = self.wanted[int(self.parts.table[row, BOX])]
            part = one.box.intersect(chunk)
            if part is not None:
                self.fill(one.view[part.relative_to(one.box.start).slices])


@dataclass(frozen=True, slots=True)
class _CachedRead:
    """The part of a read that a cache has, or keeps for the next one."""

    read: _Read
    cache: ChunkCache
    identify: Identify

    def run(self) -> list[int]:
        """Do what can be done by way of the cache; return the numbers of the chunks that are left."""
        places, pipeline = self.read.parts.places, self.read.volume.pipeline
        found = enumerate(self.identify(places))
        keys = {number: Key(pipeline, identity) for number, identity in found if identity is not None}
        left = awaited = self._do(keys)
        for event in awaited.values():
            event.wait()  # for another read, which this one keeps from nothing: it holds no claim and no slot now
        if awaited:
            # Waited for once: what others had no room for, or load yet again, is decoded without the cache.
            left = self._do({number: keys[number] for number in awaited})
            self.cache.pass_by(len(left))
        return [number for number in range(len(places)) if number not in keys or number in left]

    def _do(self, keys: dict[int, Key]) -> dict[int, threading.Event]:
        """Do the chunks that are there and those that nobody is loading; return what to wait for of the others."""
        places = self.read.parts.places
        with self.cache.claimed(keys.values()) as claim:
            awaited = {number: claim.awaited[key] for number, key in keys.items() if key in claim.awaited}
            mine = [number for number in keys if number not in awaited]
            with self.read.volume.ahead([places[number] for number in mine if keys[number] in claim.owned]) as fetch:

                def paste_chunk(number: int) -> None:
                    chunk = claim.held.get(keys[number]) or self._load(claim, keys[number], number, fetch)
                    if chunk is not None:
                        self.read.paste(number, chunk.data, is_shuffled=chunk.is_shuffled)
                        self.cache.drop(claim, keys[number])

                team().run(paste_chunk, mine)
        return awaited

    def _load(self, claim: Claim, key: Key, number: int, fetch: Fetch) -> Chunk | None:
        """Decode a chunk into the cache; None where it was not to be kept, and is pasted."""
        read, pipeline = self.read, self.read.volume.pipeline
        place = read.parts.places[number]
        try:
            fetched = fetch(place)
            # Asked again: the bytes may be newer than what was asked about, and an old file can come back.
            if fetched is not None and self.identify([place])[0] == key.identity:
                stored, mask = fetched.data, fetched.mask
                chunk = self.cache.load(
                    claim, key, pipeline.nbytes, fill=lambda out: pipeline.decode_into(out, stored, mask=mask)
                )
                if chunk is not None:
                    return chunk
        except DataError as error:
            raise read.failed(number, error) from error
        self.cache.give_up(claim, key)  # before it is decoded: whoever waits for it does so in vain
        read.pasting(lambda _: fetched)(number)
        return None


def with_slot(*, is_local: bool) -> AbstractContextManager[None]:
    """Return what gives a read its slot; nothing where it may wait for a server, or for chunks that others load."""
    return team().slot() if is_local and chunk_cache() is None else nullcontext()
