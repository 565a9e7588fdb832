"""h5py in this process: slices, and read_direct into a reused buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import hdf5plugin  # noqa: F401 - registers the filters
import numpy as np

from bench.harness.samples import Field
from bench.reading.contender import WHOLE, Entry, Job, Session, Setting, nothing, session_of
from voxload.benchmark.loaders.blocks import Slices, Stored, chunk_bytes
from voxload.benchmark.loaders.hdf5_array import Hdf5Array
from voxload.geometry import Box, chunks_touched

_DEFAULT_CACHE = 8 << 20
"""Bytes of the chunk cache of HDF5 2.0."""


class SlicedHdf5(Hdf5Array):
    """Reads as most people write it: ``out[...] = dataset[box]``; the copy belongs to it, for the buffer is given."""

    def read(self, source: Slices, out: Field, target: Slices) -> None:
        """See Stored."""
        out[target] = self._dataset[source]


_WAYS = (("h5py", "h5py slice", SlicedHdf5), ("h5py-direct", "h5py read_direct", Hdf5Array))


def entries(job: Job) -> Iterator[Entry]:
    """Yield both ways of reading an HDF5 file.

    Each reads a copy of its own: libhdf5 shares one chunk cache among all that open one file in one process, so that
    one contender would read what another one has decoded.
    """
    for number, (peer, title, way) in enumerate(_WAYS):
        volume = job.sample.copy(number)
        settings = (
            Setting("one-chunk cache" if cache else "", partial(_open, opener=partial(way, volume, cache)))
            for cache in caches(job)
        )
        yield Entry(peer, title, 0, tuple(settings))


def caches(job: Job) -> tuple[int | None, ...]:
    """Return the chunk caches worth trying, in bytes: the default, as None, and room for one chunk.

    One chunk may be faster, for an octant needs each chunk once. It is the only choice where the default cache would
    still hold what the round before decoded: then nothing would be read. No room at all is no choice: HDF5 then
    reads chunks without filters row by row.
    """
    one = chunk_bytes(job.sample.volume)
    if not one:
        return (None,)
    return (None, one) if len(_touched(job)) * one > 2 * _DEFAULT_CACHE else (one,)


def _touched(job: Job) -> set[tuple[int, ...]]:
    """Return the grid places of all chunks that hold voxels of the boxes."""
    boxes = [chunks_touched(box, job.sample.volume.chunks) for box in job.case.boxes]
    return {
        tuple(low + step for low, step in zip(box.start, place, strict=True))
        for box in boxes
        for place in np.ndindex(*box.shape)
    }


def _open(job: Job, opener: Callable[[], Stored]) -> Session:
    array = opener()
    is_one_chunk = job.sample.chunk is not None and len(_touched(job)) == 1
    return session_of(job, array, partial(_evict, job, array) if is_one_chunk else nothing)


def _evict(job: Job, array: Stored) -> None:
    """Push the only chunk of a job out of the cache, where it would outlast the round, by a voxel of another one."""
    far = 0 if job.case.boxes[0].start[0] else job.sample.size - 1
    array.read(Box((far, 0, 0), (far + 1, 1, 1)).slices, np.empty((1, 1, 1), job.out.dtype), WHOLE)
