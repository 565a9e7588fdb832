"""A cube of compressed chunks whose decoding is counted, and a cache of its chunks that is checked."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.geometry import Box
from voxload.readers import chunk_cache, set_chunk_cache
from voxload.readers.chunks.chunkcache import ENTRY_BYTES, ChunkCache, Identity
from voxload.readers.chunks.chunked import ChunkedVolume, Fetched
from voxload.readers.decode.codecs import DEFLATE, Pipeline, Step
from voxload.readers.pasting.pasteplan import ChunkShape, Place, Wanted
from voxload.readers.scratch import Bytes

EXTENT = 8
NBYTES = EXTENT**3 * 2
COST = NBYTES + ENTRY_BYTES
SHAPE = (20, 24, 16)
CUBE = np.random.default_rng(0).integers(0, 9, SHAPE).astype("<i2")
WHOLE = Box.whole(SHAPE)
CHUNKS = 3 * 3 * 2


@dataclass(eq=False)
class Counting:
    """A filter that stores data as they are, counts how often it is undone, and calls what a test wants called."""

    before: Callable[[], None] = lambda: None
    """Called first, in the thread that decodes."""
    count: int = 0
    """Chunks decoded."""
    grows: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the data; of any size, as a compressor is undone behind it."""
        del size
        with self.lock:
            self.count += 1
        self.before()
        return data


def stored(place: Place) -> npt.NDArray[np.uint8]:
    """Return a chunk of the cube as its bytes lie in planes and deflated."""
    chunk = np.zeros((EXTENT,) * 3, "<i2")
    part = CUBE[tuple(slice(i * EXTENT, (i + 1) * EXTENT) for i in place)]
    chunk[tuple(slice(0, n) for n in part.shape)] = part
    planes = np.ascontiguousarray(chunk.view("u1").reshape(-1, 2).T)
    return np.frombuffer(zlib.compress(planes.tobytes(), 1), np.uint8)


def identities(places: Sequence[Place]) -> list[Identity]:
    """Name chunks by their places."""
    return [Identity(("cube", '"1"'), place) for place in places]


def volume(step: Step, **others: Any) -> ChunkedVolume:
    """Return the cube as a volume of shuffled and deflated chunks; `step` is undone first."""
    pipeline = Pipeline((DEFLATE, step), NBYTES, is_shuffled=True, shift=1)
    sources: dict[str, Any] = {"fetch": lambda place: Fetched(stored(place)), "identify": identities, **others}
    return ChunkedVolume("cube", ChunkShape.of((EXTENT,) * 3, np.dtype("<i2")), pipeline, **sources)


def read(source: ChunkedVolume, box: Box = WHOLE) -> npt.NDArray[np.int16]:
    """Return the voxels of a box; no chunk may be missing."""
    out = np.full(box.shape, -1, np.int16)
    source.read_all([Wanted(box, out)], fill=never)
    return out


def never(view: npt.NDArray[Any]) -> None:
    """Refuse to fill a missing chunk."""
    raise AssertionError(f"nothing is missing, yet {view.shape} was to be filled")


def check(cache: ChunkCache) -> None:
    """Refuse a cache at rest that does not add up, or holds what nobody uses any more."""
    sizes = [chunk.data.size for chunk in cache._chunks.values()] + [spare.size for spare in cache._spare]
    assert cache.figures().nbytes == sum(sizes) + ENTRY_BYTES * len(sizes) <= cache.budget
    assert (cache._busy, cache._loading) == (0, {})
    assert not any(chunk.users for chunk in cache._chunks.values())


def cache_of(chunks: int) -> ChunkCache:
    """Give the process a cache with room for so many chunks."""
    set_chunk_cache(chunks * COST)
    found = chunk_cache()
    assert found is not None
    return found


def places(box: Box) -> list[Place]:
    """Return the places of the chunks that a box touches."""
    counts = [range(lo // EXTENT, -(-hi // EXTENT)) for lo, hi in zip(box.start, box.stop, strict=True)]
    return [(i, j, k) for i in counts[0] for j in counts[1] for k in counts[2]]
