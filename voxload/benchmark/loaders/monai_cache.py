"""MONAI's CacheDataset under its ThreadDataLoader, as its guide to fast training advises."""

from __future__ import annotations

from voxload.benchmark.loaders.kind import Kind
from voxload.benchmark.loaders.protocol import BenchLoader, Task
from voxload.benchmark.loaders.volumes import HDF5


def _make(task: Task) -> BenchLoader:
    from voxload.benchmark.loaders.monai_loading import MonaiLoading  # noqa: PLC0415 - imports the library, for seconds

    return MonaiLoading(task)


KIND = Kind(
    "monai",
    "MONAI CacheDataset",
    ("monai", "h5py"),
    (HDF5,),
    _make,
    least_threads=1,
    keeps_memory=True,
)
