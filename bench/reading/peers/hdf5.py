"""h5py in this process: slices, and read_direct into a reused buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import h5py
import hdf5plugin  # noqa: F401 - registers the filters
import numpy as np

from bench.reading.contender import Entry, Job, Session, Setting
from bench.reading.samples import DATASET
from voxload.geometry import chunks_touched

DEFAULT_CACHE = 8 << 20
"""Bytes of the chunk cache of HDF5 2.0."""


def caches(job: Job) -> tuple[int | None, ...]:
    """Return the chunk caches worth trying, in bytes: the default, as None, and room for one chunk.

    One chunk may be faster, for an octant needs each chunk once. It is the only choice where the default cache would
    still hold what the round before decoded: then nothing would be read. No room at all is no choice: HDF5 then
    reads chunks without filters row by row.
    """
    chunk = job.sample.chunk
    if chunk is None:
        return (None,)
    one = chunk**3 * job.out.itemsize
    return (None, one) if len(_touched(job, chunk)) * one > 2 * DEFAULT_CACHE else (one,)


def _touched(job: Job, chunk: int) -> set[tuple[int, ...]]:
    """Return the grid places of all chunks that hold voxels of the boxes."""
    boxes = [chunks_touched(box, (chunk,) * 3) for box in job.case.boxes]
    return {
        tuple(low + step for low, step in zip(box.start, place, strict=True))
        for box in boxes
        for place in np.ndindex(*box.shape)
    }


def _evict(job: Job, dataset: h5py.Dataset) -> None:
    """Push the chunk of a one-chunk job out of the cache, where it would outlast the round."""
    if job.sample.chunk and len(_touched(job, job.sample.chunk)) == 1:
        size, (first, *_) = job.sample.size, job.case.boxes[0].start
        dataset[0 if first else size - 1, 0, 0]


class SliceSession:
    """``out[...] = dataset[box]``: what most people write; the copy belongs to it, for the buffer is given."""

    def __init__(self, job: Job, cache: int | None) -> None:
        self._job = job
        self.out = job.out
        self._boxes = job.case.boxes
        self._file = h5py.File(job.sample.twins()[0], "r", rdcc_nbytes=cache)
        self._dataset = self._file[DATASET]

    def prepare(self) -> None:
        """See to it that no chunk of the round before is in the cache."""
        _evict(self._job, self._dataset)

    def read(self) -> None:
        """Read the boxes one after the other."""
        for index, box in enumerate(self._boxes):
            self.out[index] = self._dataset[box.slices]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class DirectSession:
    """``dataset.read_direct`` into the buffer: no array is made."""

    def __init__(self, job: Job, cache: int | None) -> None:
        self._job = job
        self.out = job.out
        self._boxes = job.case.boxes
        self._file = h5py.File(job.sample.twins()[1], "r", rdcc_nbytes=cache)
        self._dataset = self._file[DATASET]

    def prepare(self) -> None:
        """See to it that no chunk of the round before is in the cache."""
        _evict(self._job, self._dataset)

    def read(self) -> None:
        """Read the boxes one after the other."""
        for index, box in enumerate(self._boxes):
            self._dataset.read_direct(self.out, box.slices, index)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _settings(session: Callable[..., Session], job: Job) -> tuple[Setting, ...]:
    return tuple(Setting("one-chunk cache" if cache else "", partial(session, cache=cache)) for cache in caches(job))


def entries(job: Job) -> Iterable[Entry]:
    """Return both ways of reading an HDF5 file."""
    if job.sample.layout.family == "hdf5":
        yield Entry("h5py", "h5py slice", 0, _settings(SliceSession, job))
        yield Entry("h5py-direct", "h5py read_direct", 0, _settings(DirectSession, job))
