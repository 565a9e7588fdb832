"""torch's loader with zarr-python, by its own pipeline and by that of zarrs; worker processes keep arrays open."""

from __future__ import annotations

from functools import partial

from voxload.benchmark.loaders.blocks import BlockReader, Stored
from voxload.benchmark.loaders.kind import Kind
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.benchmark.loaders.torch_loading import TorchLoading
from voxload.benchmark.loaders.volumes import ZARR2, ZARR3


def open_zarr(volume: Volume, *, is_zarrs: bool) -> Stored:
    """Open an array; zarr-python is imported when there is one."""
    from voxload.benchmark.loaders.zarr_array import ZarrArray  # noqa: PLC0415 - see above

    return ZarrArray(volume, is_zarrs=is_zarrs)


def _make(task: Task, *, is_zarrs: bool) -> TorchLoading:
    return TorchLoading(task, BlockReader(task, partial(open_zarr, is_zarrs=is_zarrs)))


KIND = Kind("torch-zarr", "torch DataLoader, zarr-python", ("zarr",), (ZARR2, ZARR3), partial(_make, is_zarrs=False))
ZARRS = Kind(
    "torch-zarrs",
    "torch DataLoader, zarrs",
    ("zarr", "zarrs"),
    (ZARR2, ZARR3),
    partial(_make, is_zarrs=True),
    native_only=(ZARR2,),
)
