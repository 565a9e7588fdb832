"""Case and Contender: what is loaded, and by whom, by the names that the command line gives them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from voxload.benchmark.generate.plan import Contents, DatasetPlan, Kind
from voxload.benchmark.generate.storage import Codec, Storage, StoreFormat
from voxload.benchmark.workload.workload import Length, Samples, Share, Supply, Workload

MAIN = "hdf5-gzip"
"""The case of which most is asked, and in which a consumer computes, too."""
OWN, OWN_CACHE = "voxload", "voxload-cache"
WORKERS, WHOLE, SINGLE = "h5py-workers", "h5py-whole", "h5py-single"
_CHANNELS = 4
_CHUNK = 64
"""Extent of a chunk in voxels, or the sample's where that is less."""
_ROOM = 1.2
"""Room for blocks that are kept, over their bytes."""
_WEIGHED_BYTES, _MOST_WEIGHED = 1 << 29, 100
"""Of blocks, and epochs, of a run whose memory is looked at: a second or more."""
_HDF5, _ZARR, _NPY = (StoreFormat.HDF5,), (StoreFormat.ZARR3,), (StoreFormat.NPY,)


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of a table."""

    name: str
    loader: str
    """Name of a loader; see `voxload.benchmark.loaders`."""
    title: str
    """What tables say of it, with ``{n}`` for the number of threads or processes."""
    formats: tuple[StoreFormat, ...]
    """What it can load, or is shown with."""
    keeps_blocks: bool = False
    """Whether it keeps blocks in memory after the first epoch."""
    has_workers: bool = True
    """Whether it is told how many threads or processes read; else torch reads by itself, and voxload as by default."""

    @property
    def is_peer(self) -> bool:
        """Whether it is compared with: all but voxload itself."""
        return self.loader != OWN


CONTENDERS = {
    each.name: each
    for each in (
        Contender(OWN, OWN, "voxload, {n} threads", (*_HDF5, *_ZARR, *_NPY), has_workers=False),
        Contender(OWN_CACHE, OWN, "voxload, blocks in memory", _HDF5, keeps_blocks=True, has_workers=False),
        Contender(WORKERS, "torch-h5py", "torch, {n} workers, h5py block", _HDF5),
        Contender(WHOLE, "torch-h5py-whole", "torch, {n} workers, h5py whole sample", _HDF5),
        Contender(SINGLE, "torch-h5py", "torch, 0 workers, h5py block", _HDF5, has_workers=False),
        Contender("monai", "monai", "MONAI CacheDataset + ThreadDataLoader", _HDF5, keeps_blocks=True),
        Contender("zarr-workers", "torch-zarr", "torch, {n} workers, zarr-python", _ZARR),
        Contender("zarrs-workers", "torch-zarrs", "torch, {n} workers, zarrs pipeline", _ZARR),
        Contender("tensorstore", "tensorstore", "tensorstore, {n} threads", _ZARR),
        Contender("npy-workers", "torch-npy", "torch, {n} workers, numpy map", _NPY),
        Contender("dali", "dali", "DALI numpy reader, {n} threads", _NPY),
    )
}


@dataclass(frozen=True, slots=True)
class Case:
    """A data set, and the part of each sample that is wanted: that of the last of as many ranks as there are blocks."""

    name: str
    plan: DatasetPlan
    spatial: tuple[int, int, int]
    """Blocks of a sample."""
    batch: int
    """Samples of a batch."""
    epochs: int
    """Epochs that are timed."""

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return self.plan.sample_bytes // prod(self.spatial)

    @property
    def weighed_epochs(self) -> int:
        """Epochs of a run whose memory is looked at: two or more, for small samples are gone between two looks."""
        return min(_MOST_WEIGHED, max(2, _WEIGHED_BYTES // (self.plan.samples * self.block_bytes)))

    @property
    def title(self) -> str:
        """What tables say of it."""
        (channels, size, *_), (d, h, w) = self.plan.shape, self.spatial
        return (
            f"{self.name}: {self.plan.samples} samples of {channels} x {size}^3 int16, a block of ({d}, {h}, {w}), "
            f"batches of {self.batch}, {self.epochs} epochs"
        )

    def workload(self, contender: Contender, folder: Path, *, threads: int, seed: int) -> Workload:
        """Return what a contender is told; `folder` holds the samples."""
        room = int(self.plan.samples * self.block_bytes * _ROOM) + (1 << 20)
        return Workload(
            Samples(str(folder)),
            Share(self.spatial, ranks_of=prod(self.spatial), batch_size=self.batch, seed=seed),
            Length(self.epochs),
            Supply(
                contender.loader,
                threads=threads if contender.has_workers else 0,
                memory=room if contender.keeps_blocks else 0,
            ),
        )


def all_cases(size: int, count: int) -> dict[str, Case]:
    """Return all cases by name, for large samples of a size, so many of each; small ones are a fourth of it.

    Samples of one size and number hold the same voxels in all formats.
    """
    octant, whole = (2, 2, 2), (1, 1, 1)
    gzip, zstd = Codec("shuffle-gzip", 4), Codec("zstd", 3)
    found = (
        Case(MAIN, _plan(size, count, StoreFormat.HDF5, gzip), octant, 1, 4),
        Case("hdf5-gzip-small", _plan(size // 4, 8 * count, StoreFormat.HDF5, gzip), whole, 4, 4),
        Case("zarr-zstd", _plan(size, count, StoreFormat.ZARR3, zstd), octant, 1, 4),
        Case("zarr-sharded-zstd", _plan(size, count, StoreFormat.ZARR3, zstd, is_sharded=True), octant, 1, 4),
        Case("npy", _plan(size, count // 2, StoreFormat.NPY, Codec()), octant, 1, 8),
    )
    return {case.name: case for case in found}


def _plan(size: int, samples: int, form: StoreFormat, codec: Codec, *, is_sharded: bool = False) -> DatasetPlan:
    chunk = min(_CHUNK, size)
    half = max(size // 2, chunk)
    storage = Storage(
        form,
        chunks=(1, chunk, chunk, chunk) if form.is_chunked else None,
        shards=(_CHANNELS, half, half, half) if is_sharded else None,
        codec=codec,
    )
    return DatasetPlan((_CHANNELS, size, size, size), "<i2", storage, Contents(Kind.COUNTS), samples)
