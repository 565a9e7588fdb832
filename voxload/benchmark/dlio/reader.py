"""VoxloadReader: samples read by voxload for DLIO's own data loaders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from dlio_benchmark.reader.reader_handler import FormatReader

from voxload.benchmark.dlio.records import Cut, RecordDataset, records_of
from voxload.benchmark.dlio.settings import Options, Settings
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.readers.registry import find_format


class VoxloadReader(FormatReader):  # type: ignore[misc] # DLIO has no types
    """Opens a file, reads whole samples of it and closes it when DLIO says so, in DLIO's worker processes.

    Name it in ``workload.reader.reader_classname``. As DLIO's readers do, it reads each sample and hands the loader an
    array that is made once. It compares voxload's reading with h5py's and numpy's; threads, read-ahead and a spatial
    split are `VoxloadDataLoader`'s.

    Raises
    ------
    UsageError
        For workloads that voxload cannot read, see `Settings`, and a spatial split.
    """

    def __init__(self, dataset_type: Any, thread_index: int, epoch: int) -> None:
        del epoch
        super().__init__(dataset_type, thread_index)
        options = Options.of(os.environ)
        if options != Options(staging=options.staging):
            raise UsageError(
                "VOXLOAD_DLIO_SPATIAL, VOXLOAD_DLIO_HALO",
                found="a split, and DLIO's own data loader, which reads whole samples",
                remedy="unset them, or use voxload.benchmark.dlio.loader.VoxloadDataLoader",
            )
        self._settings = Settings.of(self._args, is_training=True)

    def open(self, filename: str) -> RecordDataset:
        """Return the file's samples, with the file open."""
        super().open(filename)
        records = records_of(self._settings, filename, find_format(filename).datasets(filename))
        data = RecordDataset([filename], records, Cut(ProcessGrid()))
        data.layout(0)
        return data

    def close(self, filename: str) -> None:
        """Close a file that is open."""
        self.open_file_map[filename].close()

    def get_sample(self, filename: str, sample_index: int) -> None:
        """Read a sample of an open file; raises what reading raises."""
        super().get_sample(filename, sample_index)
        data = self.open_file_map[filename]
        data.read_into(sample_index, [np.empty(part.shape, part.dtype) for part in data.layout(sample_index)])

    def next(self) -> Iterator[Any]:
        """Yield DLIO's batches of this reader's share of the samples."""
        yield from super().next()

    def read_index(self, global_sample_idx: int, step: int) -> Any:
        """Read the sample of a number, and return what stands for it."""
        return super().read_index(global_sample_idx, step)

    def finalize(self) -> None:
        """Close the files that are open."""
        for filename, data in self.open_file_map.items():
            if data is not None:
                self.close(filename)
                self.open_file_map[filename] = None

    def is_index_based(self) -> bool:
        """Tell that samples can be asked for by number."""
        return True

    def is_iterator_based(self) -> bool:
        """Tell that samples can be had one after another."""
        return True
