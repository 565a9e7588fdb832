"""Chunked reads: the team that fetches, decodes and pastes the chunks that a read touches.

The hot path is one call of ``paste_chunk`` a chunk. A chunk of 64^3 decodes in a few hundred microseconds, so where
its parts go is planned before, for all chunks at once. Chunks that lie in memory as they are need no Python at all:
a thread copies a whole range of the plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError
from voxload.geometry import Box, split
from voxload.readers import filekernels, kernels
from voxload.readers.codecs import Pipeline
from voxload.readers.parts import ChunkShape, Parts, Place, Wanted, plan_parts
from voxload.readers.paste import Copier, Paster, paster
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
        parts = plan_parts(self.shape, wanted)
        read = _Read(self, wanted, parts, fill, paster(self.shape, wanted[0].view.dtype))
        nbytes = sum(one.view.nbytes for one in wanted)
        is_shared = nbytes >= _SHARED_BYTES or bool(self.pipeline.steps)
        mapped = self._located(parts.places)
        if mapped is not None:
            read.copy(mapped, -(-nbytes // _SHARE_BYTES) if is_shared else 1)
            return
        numbers: Sequence[int] = range(len(parts.places))
        with self.expect(parts.places) if self.expect else nullcontext(self.fetch) as fetch:
            if self.files is not None and isinstance(read.paster, Copier):
                numbers = read.gather(self.files(parts.places), _FILES if is_shared else len(numbers))
            paste_chunk = read.pasting(fetch)
            if is_shared:
                team().run(paste_chunk, numbers)
            else:
                for number in numbers:
                    paste_chunk(number)

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
        fetch_part, decode, subject = volume.fetch_part, volume.pipeline.decode, volume.subject
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
                raise error.within(f"{subject}, chunk {place}", remedy=_REMEDY) from error
            paste(data, table, (bounds[number], bounds[number + 1]), is_shuffled=is_shuffled)

        return paste_chunk

    def copy(self, mapped: Mapped, shares: int) -> None:
        """Paste chunks that lie in memory, in so many shares."""
        table, starts = self.parts.table, mapped.addresses
        if len(table) != len(starts):
            starts = np.repeat(starts, np.diff(self.parts.bounds))
        table[:, kernels.FIRST] += starts
        table[:, kernels.STOP] += starts
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
        bounds = self.parts.bounds
        jobs = np.empty((len(bounds) - 1, filekernels.COLUMNS), np.uint64)
        jobs[:, filekernels.NAME] = names.starts
        jobs[:, filekernels.START : filekernels.STOP + 1] = self.parts.spans
        jobs[:, filekernels.BEGIN], jobs[:, filekernels.END] = bounds[:-1], bounds[1:]
        done = np.zeros(len(jobs), np.uint8)
        table, width = self.parts.table, self.volume.shape.itemsize
        is_swapped = self.volume.shape.is_swapped and width > 1
        nbytes = self.volume.pipeline.nbytes

        def paste_files(first: int) -> None:
            some, chunk = slice(first, first + most), scratch.stored(nbytes)
            filekernels.paste_files(names.data, jobs[some], table, chunk, width, is_swapped, done[some])

        team().run(paste_files, range(0, len(jobs), most))
        return np.flatnonzero(done == 0).tolist()

    def _fill(self, number: int) -> None:
        """Let the caller fill what is wanted of a chunk that was never written."""
        place, extents = self.parts.places[number], self.volume.shape.extents
        chunk = Box.whole(extents).shift([index * extent for index, extent in zip(place, extents, strict=True)])
        for row in range(self.parts.bounds[number], self.parts.bounds[number + 1]):
            one = self.wanted[int(self.parts.table[row, kernels.BOX])]
            part = one.box.intersect(chunk)
            if part is not None:
                self.fill(one.view[part.relative_to(one.box.start).slices])
