"""Case: samples as they are stored, in the sizes in which reading takes less than handing over."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from voxload.benchmark.generate.generate import generate
from voxload.benchmark.generate.plan import Contents, DatasetPlan, Kind
from voxload.benchmark.generate.storage import Codec, Storage, StoreFormat

OWN = "voxload"
OWNS = (OWN, "voxload-process")
_CHANNELS = 4


@dataclass(frozen=True, slots=True)
class Store:
    """How samples are stored, and who else reads them."""

    name: str
    form: StoreFormat
    codec: Codec
    peer: str
    """Name of torch's loader over the format's own library; see `voxload.benchmark.loaders`."""
    is_sharded: bool = False

    def samples(self, folder: Path, size: int, count: int) -> Path:
        """Return a folder of samples of ``(4, size, size, size)`` int16, written where they are not there."""
        chunk = min(32, size)
        storage = Storage(
            self.form,
            chunks=(1, chunk, chunk, chunk) if self.form.is_chunked else None,
            shards=(_CHANNELS, size, size, size) if self.is_sharded else None,
            codec=self.codec,
        )
        plan = DatasetPlan((_CHANNELS, size, size, size), "<i2", storage, Contents(Kind.COUNTS), count)
        found = folder / f"{self.name}-{count}x{size}"
        generate(found, plan, workers=2)
        os.sync()  # writing back is no part of what is timed
        return found


STORES = {
    each.name: each
    for each in (
        Store("npy", StoreFormat.NPY, Codec(), "torch-npy"),
        Store("hdf5", StoreFormat.HDF5, Codec(), "torch-h5py"),
        Store("hdf5-gzip", StoreFormat.HDF5, Codec("shuffle-gzip", 4), "torch-h5py"),
        Store("zarr-zstd", StoreFormat.ZARR3, Codec("zstd", 3), "torch-zarr"),
        Store("zarr-sharded-zstd", StoreFormat.ZARR3, Codec("zstd", 3), "torch-zarr", is_sharded=True),
    )
}
