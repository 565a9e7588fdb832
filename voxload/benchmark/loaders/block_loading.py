"""Block loading: loaders that read blocks in Python, by torch's worker processes or by the consumer itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from voxload.benchmark.loaders.blocks import BlockReader, Slices, Stored
from voxload.benchmark.loaders.delivery import CurrentEpoch, GivenOrder, delivered, is_on_device
from voxload.benchmark.loaders.kind import Kind
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.benchmark.loaders.volumes import HDF5, NPY, RAW, ZARR2, ZARR3
from voxload.readers.protocol import Volume as Array


@dataclass(frozen=True, slots=True)
class MappedArray:
    """See Stored; reading is copying."""

    array: Array
    """The voxels, in the stored order of the axes."""

    def view(self, source: Slices) -> Array:
        """See Stored."""
        return self.array[source]

    def read(self, source: Slices, out: Array, target: Slices) -> None:
        """See Stored."""
        out[target] = self.array[source]

    def close(self) -> None:
        """See Stored; a map goes with the last view of it."""


class TorchBlocks(Dataset[Tensor]):
    """Blocks as torch's loader takes them: views of buffers that are used again, for the collation copies them."""

    def __init__(self, blocks: BlockReader) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self._blocks.block(index))

    def close(self) -> None:
        """Close what this process opened."""
        self._blocks.close()


class TorchLoading:
    """See BenchLoader.

    Worker processes stay from epoch to epoch and keep what they have opened: the best that torch's loader can do. They
    collate in shared memory.
    """

    def __init__(self, task: Task, blocks: BlockReader) -> None:
        self._supply = task.workload.supply
        self._asked, self._running = GivenOrder(), CurrentEpoch()
        self._data = TorchBlocks(blocks)
        workers = self._supply.threads
        self._loader: DataLoader[Tensor] | None = DataLoader(
            self._data,
            task.workload.share.batch_size,
            sampler=self._asked,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=self._supply.prefetch if workers else None,
            pin_memory=is_on_device(self._supply),
        )

    def epoch(self, number: int, indices: tuple[int, ...]) -> Iterator[Tensor]:  # noqa: ARG002 - the contract's
        """See BenchLoader."""
        self._running.end()
        self._asked.indices = indices
        return self._running.begin(delivered(self._loader or (), self._supply))

    def counts(self) -> Mapping[str, Any]:
        """See BenchLoader."""
        return {}

    def close(self) -> None:
        """See BenchLoader; torch's worker processes end with its loader."""
        self._running.end()
        self._loader = None
        self._data.close()


def open_hdf5(volume: Volume) -> Stored:
    """Open a dataset; h5py is imported when there is one."""
    from voxload.benchmark.loaders.hdf5_array import Hdf5Array  # noqa: PLC0415 - see above

    return Hdf5Array(volume)


def _make_h5py(task: Task) -> TorchLoading:
    return TorchLoading(task, BlockReader(task, open_hdf5))


TORCH_H5PY = Kind("torch-h5py", "torch DataLoader, h5py blocks", ("h5py",), (HDF5,), _make_h5py)


def read_whole(volume: Volume) -> Stored:
    """Open a file, read all of its dataset into a new array, and close it; h5py is imported when it comes to that."""
    import h5py  # noqa: PLC0415 - see above

    with h5py.File(volume.path, "r") as file:
        return MappedArray(file[volume.dataset][()])


def _make_h5py_whole(task: Task) -> TorchLoading:
    return TorchLoading(task, BlockReader(task, read_whole, most_open=0))


TORCH_H5PY_WHOLE = Kind(
    "torch-h5py-whole", "torch DataLoader, h5py whole samples", ("h5py",), (HDF5,), _make_h5py_whole
)


def open_zarr(volume: Volume, *, is_zarrs: bool) -> Stored:
    """Open an array; zarr-python is imported when there is one."""
    from voxload.benchmark.loaders.zarr_array import ZarrArray  # noqa: PLC0415 - see above

    return ZarrArray(volume, is_zarrs=is_zarrs)


def _make_zarr(task: Task, *, is_zarrs: bool) -> TorchLoading:
    return TorchLoading(task, BlockReader(task, partial(open_zarr, is_zarrs=is_zarrs)))


TORCH_ZARR = Kind(
    "torch-zarr", "torch DataLoader, zarr-python", ("zarr",), (ZARR2, ZARR3), partial(_make_zarr, is_zarrs=False)
)
TORCH_ZARRS = Kind(
    "torch-zarrs",
    "torch DataLoader, zarrs",
    ("zarr", "zarrs"),
    (ZARR2, ZARR3),
    partial(_make_zarr, is_zarrs=True),
    native_only=(ZARR2,),
)


def map_file(volume: Volume) -> Stored:
    """Map a file, copy-on-write: nothing is written, and torch takes no array that could not be."""
    if volume.format == RAW:
        return MappedArray(np.memmap(volume.path, volume.dtype, mode="c", shape=volume.shape))
    return MappedArray(np.load(volume.path, mmap_mode="c"))


def _make_npy(task: Task) -> TorchLoading:
    return TorchLoading(task, BlockReader(task, map_file))


TORCH_NPY = Kind("torch-npy", "torch DataLoader, numpy memory maps", (), (NPY, RAW), _make_npy)


class PlainLoading:
    """See BenchLoader; blocks are read straight into the batch, which is used again for the next one."""

    def __init__(self, task: Task) -> None:
        self._supply, self._running = task.workload.supply, CurrentEpoch()
        self._blocks = BlockReader(task, open_hdf5)
        cut, self._size = self._blocks.cut, task.workload.share.batch_size
        whole = torch.from_numpy(np.zeros((self._size, *cut.volume_shape), cut.dtype))
        self._batch = whole.pin_memory() if is_on_device(self._supply) else whole

    def epoch(self, number: int, indices: tuple[int, ...]) -> Iterator[Tensor]:  # noqa: ARG002 - the contract's
        """See BenchLoader."""
        self._running.end()
        return self._running.begin(delivered(self._batches(indices), self._supply))

    def counts(self) -> Mapping[str, Any]:
        """See BenchLoader."""
        return {}

    def close(self) -> None:
        """See BenchLoader."""
        self._running.end()
        self._blocks.close()

    def _batches(self, indices: tuple[int, ...]) -> Iterator[Tensor]:
        for first in range(0, len(indices), self._size):
            own = indices[first : first + self._size]
            for place, index in enumerate(own):
                self._blocks.read_into(index, self._batch[place].numpy())
            yield self._batch[: len(own)]


H5PY_ALONE = Kind("h5py", "h5py, one thread", ("h5py",), (HDF5,), PlainLoading)
