"""StoredChunks: the chunks of one volume as they are stored, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from voxload.readers.chunks.chunked import Fetch, Fetched
from voxload.readers.pasting.pasteplan import Place

Expect = Callable[[Sequence[Place]], AbstractContextManager[Fetch]]
"""Fetches chunks ahead; see ``ChunkedVolume.expect``."""


@dataclass(frozen=True, slots=True)
class StoredChunks:
    """The chunks of one volume; all calls may come from many threads at once while its reader is open."""

    grid: Place
    """Chunks along each axis, in stored axis order."""
    extents: Place
    """Voxels of a chunk along each axis, in stored axis order."""
    fetch: Fetch
    """Gives a chunk as stored, whole, or None where there is none."""
    decode: Callable[[Place, Fetched], object]
    """Decodes a chunk and throws its voxels away; raises DataError when it cannot."""
    name: Callable[[Place], str]
    """Gives the name of a chunk inside its file or hierarchy."""
    expect: Expect | None = None
    """Gives the `fetch` of several chunks, which it fetches ahead; None where that gains nothing."""

    @contextmanager
    def ahead(self, places: Sequence[Place]) -> Iterator[StoredChunks]:
        """Yield the same chunks, of which those at `places` are fetched ahead; each may then be fetched once."""
        if self.expect is None:
            yield self
        else:
            with self.expect(places) as fetch:
                yield replace(self, fetch=fetch)

    def places(self) -> Iterator[Place]:
        """Yield the places of all chunks, the last axis fastest."""
        return itertools.product(*map(range, self.grid))


@runtime_checkable
class ChunkSource(Protocol):
    """A reader whose volume may be stored in chunks.

    Such a reader compares every chunk with the checksums of its location before it uses one.
    """

    def stored_chunks(self) -> StoredChunks | None:
        """Return the volume's chunks, or None when storage is contiguous; may read chunk tables."""
        ...


def grid_of(shape: Place, extents: Place) -> Place:
    """Return how many chunks of `extents` a volume of `shape` has along each axis; pure.

    >>> grid_of((5, 8), (4, 4))
    (2, 2)
    """
    return tuple(-(-extent // width) for extent, width in zip(shape, extents, strict=True))
