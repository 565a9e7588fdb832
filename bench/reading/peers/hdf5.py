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
    """Return the chunk caches worth trying, in bytes; None is the default.

    None at all may be faster, for an octant needs each chunk once. It is the only choice where the default cache
    would still hold what the round before decoded: then nothing would be read.
    """
    chunk = job.sample.chunk
    if chunk is None:
        return (None,)
    touched = [chunks_touched(box, (chunk,) * 3) for box in job.case.boxes]
    places = {_add(box.start, place) for box in touched for place in np.ndindex(*box.shape)}
    decoded = len(places) * chunk**3 * job.out.itemsize
    return (None, 0) if decoded > 2 * DEFAULT_CACHE else (0,)


def _add(start: tuple[int, ...], place: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(low + step for low, step in zip(start, place, strict=True))


class SliceSession:
    """``out[...] = dataset[box]``: what most people write; the copy belongs to it, for the buffer is given."""

    def __init__(self, job: Job, cache: int | None) -> None:
        self.out = job.out
        self._boxes = job.case.boxes
        self._file = h5py.File(job.sample.path, "r", rdcc_nbytes=cache)
        self._dataset = self._file[DATASET]

    def prepare(self) -> None:
        """Do nothing."""

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
        self.out = job.out
        self._boxes = job.case.boxes
        self._file = h5py.File(job.sample.path, "r", rdcc_nbytes=cache)
        self._dataset = self._file[DATASET]

    def prepare(self) -> None:
        """Do nothing."""

    def read(self) -> None:
        """Read the boxes one after the other."""
        for index, box in enumerate(self._boxes):
            self._dataset.read_direct(self.out, box.slices, index)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _settings(session: Callable[..., Session], job: Job) -> tuple[Setting, ...]:
    return tuple(
        Setting("no chunk cache" if cache == 0 else "", partial(session, cache=cache)) for cache in caches(job)
    )


def entries(job: Job) -> Iterable[Entry]:
    """Return both ways of reading an HDF5 file."""
    if job.sample.layout.family == "hdf5":
        yield Entry("h5py", "h5py slice", 0, _settings(SliceSession, job))
        yield Entry("h5py-direct", "h5py read_direct", 0, _settings(DirectSession, job))
