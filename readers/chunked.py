"""Chunked reads: which chunks a box touches, and the team that fetches, decodes and pastes them.

The hot path is one call of ``paste_part`` a chunk. A chunk of 64^3 decodes in a few hundred microseconds, so what
Python does for it is planned before, axis by axis, and only put together there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from voxload.errors import DataError, UsageError
from voxload.geometry import Box, split
from voxload.readers.codecs import Pipeline
from voxload.readers.paste import ChunkShape, Paster
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes
from voxload.readers.team import team

_SHARED_BYTES = 2**21
"""Undecoded copies smaller than this are done before a helper has woken up; larger ones are parted by it."""

Place = tuple[int, ...]
"""Coordinates of a chunk in the grid of chunks, in stored axis order."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a box wants of one row of chunks, on one axis."""

    chunk: int
    """The row's place in the grid."""
    start: int
    """First index wanted, counted from the chunk's own start."""
    length: int
    """How many are wanted."""
    place: int
    """Where the first one goes, counted from the box's start."""


def cuts(start: int, stop: int, width: int) -> list[Cut]:
    """Cut ``[start, stop)`` along a grid of chunks of `width`; pure.

    >>> [(c.chunk, c.start, c.length, c.place) for c in cuts(3, 9, 8)]
    [(0, 3, 5, 0), (1, 0, 1, 5)]
    """
    if start >= stop:
        return []
    found = []
    for chunk in range(start // width, (stop - 1) // width + 1):
        lo, hi = max(start, chunk * width), min(stop, (chunk + 1) * width)
        found.append(Cut(chunk, lo - chunk * width, hi - lo, lo - start))
    return found


def divided(row: list[Cut], parts: int) -> list[Cut]:
    """Cut each of `row` into as many parts again; pure.

    >>> [(c.chunk, c.start, c.length, c.place) for c in divided([Cut(0, 3, 5, 0)], 2)]
    [(0, 3, 2, 0), (0, 5, 3, 2)]
    """
    found = []
    for cut in row:
        bounds = split(cut.length, min(parts, cut.length))
        found += [Cut(cut.chunk, cut.start + lo, hi - lo, cut.place + lo) for lo, hi in itertools.pairwise(bounds)]
    return found


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
    is_divisible: bool = False
    """Whether fetching a chunk costs nothing, so that several threads may paste parts of one."""
    fetch_part: Callable[[Place, int, int], Fetched | None] | None = None
    """The same for chunks stored as they are, of which only the bytes from one place to another are wanted: what
    comes is as long as the chunk, and its other bytes may be anything."""
    expect: Callable[[Sequence[Place]], AbstractContextManager[Fetch]] | None = None
    """Told once a read of all its chunks, in the order of their use, before the first is wanted; gives the `fetch` of
    that read, and is left when the read is over, whether it failed or not. For sources that fetch ahead."""

    def read(self, box: Box, view: Volume, *, fill: Callable[[Volume], None]) -> None:
        """Fill `view`, in stored axis order, with `box`; `fill` gives the voxels of chunks never written.

        Raises
        ------
        DataError
            Naming the chunk, when one cannot be decoded.
        UsageError
            When `view` has another shape than `box`, or strides that the kernels cannot follow.
        """
        if view.shape != box.shape or not Paster.fits(view):
            raise UsageError("view", found=f"{view.shape}, strides {view.strides}", expected=f"{box.shape}, aligned")
        paster = Paster(self.shape, view)
        fetch, fetch_part, decode = self.fetch, self.fetch_part, self.pipeline.decode

        def paste_part(parts: tuple[Cut, ...]) -> None:
            place = tuple([part.chunk for part in parts])
            try:
                fetched = fetch_part(place, *self._span(parts)) if fetch_part else fetch(place)
                if fetched is None:
                    fill(view[tuple(slice(part.place, part.place + part.length) for part in parts)])
                    return
                data, is_shuffled = decode(fetched.data, mask=fetched.mask)
            except DataError as error:
                remedy = "copy or convert the file again"
                raise DataError(f"{self.subject}, chunk {place}: {error}", remedy=remedy) from error
            paster.paste(
                data,
                [part.length for part in parts],
                [part.start for part in parts],
                [part.place for part in parts],
                is_shuffled=is_shuffled,
            )

        per_axis = [cuts(*span) for span in zip(box.start, box.stop, self.shape.extents, strict=True)]
        if not self.pipeline.steps and self.expect is None and view.nbytes < _SHARED_BYTES:
            for parts in itertools.product(*per_axis):
                paste_part(parts)
            return
        if self.is_divisible:
            axis = max(range(len(per_axis)), key=lambda axis: (box.shape[axis] > 1, -axis))
            per_axis[axis] = divided(per_axis[axis], -(-view.nbytes // _SHARED_BYTES))
        tasks = list(itertools.product(*per_axis))
        with self._expected(tasks) as fetch:
            team().run(paste_part, tasks)

    def _expected(self, tasks: list[tuple[Cut, ...]]) -> AbstractContextManager[Fetch]:
        """Return the `fetch` of one read."""
        if self.expect is None:
            return nullcontext(self.fetch)
        return self.expect([tuple([part.chunk for part in parts]) for parts in tasks])

    def _span(self, parts: tuple[Cut, ...]) -> tuple[int, int]:
        """Return where in a chunk's bytes the wanted ones begin and end."""
        first = last = 0
        for part, stride in zip(parts, self.shape.strides, strict=True):
            first += part.start * stride
            last += (part.start + part.length - 1) * stride
        return first * self.shape.itemsize, (last + 1) * self.shape.itemsize
