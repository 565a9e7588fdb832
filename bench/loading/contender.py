"""Contender: a way of loading, by the name that the command line gives it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

import torch

from bench.loading.cases import HDF5, NPY, SHARDED, ZARR
from bench.loading.job import Job


class Loading(Protocol):
    """A loader that is ready for its first epoch; used by one thread."""

    def epoch(self) -> Iterator[torch.Tensor]:
        """Yield an epoch's ``(B, C, d, h, w)`` batches in an order drawn anew."""
        ...

    def close(self) -> None:
        """Stop threads and processes."""
        ...


class Peer(Protocol):
    """A module of bench.loading.peers."""

    def build(self, job: Job) -> Loading:
        """Return the contender of a job's name; this is timed, the import of the module is not."""
        ...


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of a table."""

    name: str
    module: str
    """Of bench.loading.peers."""
    package: str
    """What must be installed."""
    title: str
    """What tables say of it, with ``{n}`` for the number of threads or processes."""
    storages: tuple[str, ...]
    """What it can load, or is shown with."""
    keeps_blocks: bool = False
    """Whether it keeps blocks in memory after the first epoch."""
    is_peer: bool = True
    """Whether it is compared with: all but voxload itself, and what shows a single figure."""

    def load(self) -> Peer:
        """Return its module; raises ImportError where its library is not there, or does not start."""
        return cast("Peer", importlib.import_module(f"bench.loading.peers.{self.module}"))


_ZARRS = (ZARR, SHARDED)
_ALL = (HDF5, *_ZARRS, NPY)
OWN, OWN_CACHE = "voxload", "voxload-cache"
WORKERS, WHOLE, SINGLE = "h5py-workers", "h5py-whole", "h5py-single"
CONTENDERS = {
    each.name: each
    for each in (
        Contender(OWN, "own", "voxload", "voxload, {n} threads", _ALL, is_peer=False),
        Contender(OWN_CACHE, "own", "voxload", "voxload, blocks in memory", (HDF5,), keeps_blocks=True, is_peer=False),
        Contender(WORKERS, "torch_h5py", "h5py", "torch, {n} workers, h5py block", (HDF5,)),
        Contender(WHOLE, "torch_h5py", "h5py", "torch, {n} workers, h5py whole sample", (HDF5,)),
        Contender(SINGLE, "torch_h5py", "h5py", "torch, 0 workers, h5py block", (HDF5,)),
        Contender("monai", "monai_cache", "monai", "MONAI CacheDataset + ThreadDataLoader", (HDF5,), keeps_blocks=True),
        Contender("zarr-workers", "torch_zarr", "zarr", "torch, {n} workers, zarr-python", _ZARRS),
        Contender("zarrs-workers", "torch_zarr", "zarrs", "torch, {n} workers, zarrs pipeline", _ZARRS),
        Contender("tensorstore", "tensorstore_threads", "tensorstore", "tensorstore, {n} threads", _ZARRS),
        Contender("npy-workers", "torch_npy", "numpy", "torch, {n} workers, numpy map", (NPY,)),
        Contender("dali", "dali_numpy", "nvidia.dali", "DALI numpy reader, {n} threads", (NPY,)),
    )
}
