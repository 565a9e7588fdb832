"""Hdf5Array: an HDF5 dataset through h5py, as somebody who knows it well reads blocks of it; its loaders."""

from __future__ import annotations

import h5py

from voxload.benchmark.loaders.block_loading import MappedArray, PlainLoading, TorchLoading
from voxload.benchmark.loaders.blocks import BlockReader, Slices, Stored, chunk_bytes
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.readers.protocol import Volume as Array


class Hdf5Array:
    """See Stored.

    Parameters
    ----------
    volume
        The dataset.
    cache
        Bytes of its chunk cache; None for as many as the library takes by itself.
    """

    def __init__(self, volume: Volume, cache: int | None) -> None:
        self._file = h5py.File(volume.path, "r", rdcc_nbytes=cache)
        self._dataset = self._file[volume.dataset]

    def view(self, source: Slices) -> Array | None:  # noqa: ARG002 - the contract's
        """See Stored; everything is read."""
        return None

    def read(self, source: Slices, out: Array, target: Slices) -> None:
        """See Stored; straight into `out`, which lies in one piece."""
        self._dataset.read_direct(out, source, target)

    def close(self) -> None:
        """See Stored."""
        self._file.close()


def open_hdf5(volume: Volume) -> Hdf5Array:
    """Open a dataset with room for one chunk in its cache.

    A read goes through its box chunk by chunk and decodes each once, and `Cut` asks for no chunk twice: more room would
    take memory in every open file and spare nothing.
    """
    return Hdf5Array(volume, chunk_bytes(volume))


def read_whole(volume: Volume) -> Stored:
    """Open a file, read all of its dataset into a new array, and close it."""
    with h5py.File(volume.path, "r") as file:
        return MappedArray(file[volume.dataset][()])


def torch_h5py(task: Task) -> TorchLoading:
    """Return what reads blocks by torch's loader."""
    return TorchLoading(task, BlockReader(task, open_hdf5))


def torch_h5py_whole(task: Task) -> TorchLoading:
    """Return what reads whole samples by torch's loader, and cuts blocks out of them."""
    return TorchLoading(task, BlockReader(task, read_whole, most_open=0))


def h5py_alone(task: Task) -> PlainLoading:
    """Return what reads blocks in the consumer's thread."""
    return PlainLoading(task, BlockReader(task, open_hdf5))
