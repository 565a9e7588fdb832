"""numpy's memory map, for what lies in a file as it does in memory."""

from __future__ import annotations

from collections.abc import Iterable

import h5py
import numpy as np

from bench.reading.contender import Entry, Job, Setting
from bench.reading.samples import DATASET, Sample


def map_array(sample: Sample) -> np.memmap[tuple[int, ...], np.dtype[np.generic]]:
    """Map the voxels of a contiguous HDF5 dataset or of a ``.npy`` file."""
    if sample.layout.family == "npy":
        mapped = np.load(sample.path, mmap_mode="r")
        return np.memmap(sample.path, mapped.dtype, "r", mapped.offset, mapped.shape)
    with h5py.File(sample.path, "r") as file:
        dataset = file[DATASET]
        return np.memmap(sample.path, dataset.dtype, "r", dataset.id.get_offset(), dataset.shape)


class MapSession:
    """``np.copyto(out, map[box])``."""

    def __init__(self, job: Job) -> None:
        self.out = job.out
        self._boxes = job.case.boxes
        self._map = map_array(job.sample)

    def prepare(self) -> None:
        """Do nothing."""

    def read(self) -> None:
        """Copy the boxes one after the other."""
        for index, box in enumerate(self._boxes):
            np.copyto(self.out[index], self._map[box.slices])

    def close(self) -> None:
        """Drop the map, which ends with its last reference."""
        del self._map


def entries(job: Job) -> Iterable[Entry]:
    """Return one row for contiguous storage."""
    if not job.sample.layout.is_chunked:
        yield Entry("numpy", "numpy memmap", 0, (Setting("", MapSession),))
