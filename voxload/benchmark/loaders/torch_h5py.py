"""torch's loader with h5py: each worker process keeps files open and reads its blocks into arrays it uses again."""

from __future__ import annotations

from voxload.benchmark.loaders.blocks import BlockReader, Stored
from voxload.benchmark.loaders.kind import Kind
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.benchmark.loaders.torch_loading import TorchLoading
from voxload.benchmark.loaders.volumes import HDF5


def open_hdf5(volume: Volume) -> Stored:
    """Open a dataset; h5py is imported when there is one."""
    from voxload.benchmark.loaders.hdf5_array import Hdf5Array  # noqa: PLC0415 - see above

    return Hdf5Array(volume)


def _make(task: Task) -> TorchLoading:
    return TorchLoading(task, BlockReader(task, open_hdf5))


KIND = Kind("torch-h5py", "torch DataLoader, h5py blocks", ("h5py",), (HDF5,), _make)
