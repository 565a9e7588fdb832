"""torch's loader with h5py as most people use it: a whole sample is read, and the block is cut out of it."""

from __future__ import annotations

from voxload.benchmark.loaders.blocks import BlockReader, Stored
from voxload.benchmark.loaders.kind import Kind
from voxload.benchmark.loaders.mapped import MappedArray
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.benchmark.loaders.torch_loading import TorchLoading
from voxload.benchmark.loaders.volumes import HDF5


def read_whole(volume: Volume) -> Stored:
    """Open a file, read all of its dataset into a new array, and close it; h5py is imported when it comes to that."""
    import h5py  # noqa: PLC0415 - see above

    with h5py.File(volume.path, "r") as file:
        return MappedArray(file[volume.dataset][()])


def _make(task: Task) -> TorchLoading:
    return TorchLoading(task, BlockReader(task, read_whole, most_open=0))


KIND = Kind("torch-h5py-whole", "torch DataLoader, h5py whole samples", ("h5py",), (HDF5,), _make)
