"""Samples: one generated volume in each storage format, where readers find it, and what it holds."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.benchmark.generate.generate import generate
from voxload.benchmark.generate.plan import Contents, DatasetPlan, Kind
from voxload.benchmark.generate.storage import Codec, Extents, Storage, StoreFormat
from voxload.benchmark.generate.stores import sample_path
from voxload.benchmark.loaders.protocol import Volume
from voxload.files.atomic import replacing
from voxload.geometry import Box
from voxload.readers import Location

Field = npt.NDArray[Any]

KINDS = {"int16": Kind.COUNTS, "float32": Kind.PATTERN}
"""Types of voxels, and what they hold: counts of particles, compressible, or fractions, of which but the highest byte
is random."""
_SHARD = 256
"""Extent of a shard in voxels, or two chunks where that is more, or the sample where that is less."""
_LINE = 64


@dataclass(frozen=True, slots=True)
class Layout:
    """How a volume is stored."""

    format: StoreFormat
    codec: Codec = field(default_factory=Codec)
    is_chunked: bool = True
    is_sharded: bool = False


_BLOSC = Codec("blosc-lz4", 5)
LAYOUTS = {
    "hdf5-contiguous": Layout(StoreFormat.HDF5, is_chunked=False),
    "hdf5-chunked": Layout(StoreFormat.HDF5),
    "hdf5-gzip": Layout(StoreFormat.HDF5, Codec("shuffle-gzip", 4)),
    "hdf5-zstd": Layout(StoreFormat.HDF5, Codec("shuffle-zstd", 3)),
    "hdf5-blosc-lz4": Layout(StoreFormat.HDF5, _BLOSC),
    "zarr-raw": Layout(StoreFormat.ZARR3),
    "zarr-blosc-lz4": Layout(StoreFormat.ZARR3, _BLOSC),
    "zarr-gzip": Layout(StoreFormat.ZARR3, Codec("gzip", 4)),
    "zarr-sharded-raw": Layout(StoreFormat.ZARR3, is_sharded=True),
    "zarr-sharded-blosc": Layout(StoreFormat.ZARR3, _BLOSC, is_sharded=True),
    "npy": Layout(StoreFormat.NPY, is_chunked=False),
}
"""By the names that command lines and tables use."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A cube of voxels in one storage format."""

    folder: Path
    """Where samples are kept, each in a folder of its own."""
    layout: str
    """One of `LAYOUTS`."""
    dtype: str
    """One of `KINDS`."""
    size: int
    """Extent along each axis, in voxels."""
    chunk: int | None
    """Extent of a chunk in voxels; None where storage is contiguous."""

    @property
    def title(self) -> str:
        """What tables call it."""
        chunk = f", chunks of {self.chunk}^3" if self.chunk else ""
        return f"{self.layout}, {self.dtype} {self.size}^3{chunk}"

    @property
    def place(self) -> Path:
        """Its own folder."""
        return self.folder / f"{self.layout}-{self.dtype}-{self.size}-{self.chunk or 'whole'}"

    @property
    def plan(self) -> DatasetPlan:
        """All that it follows from."""
        layout = LAYOUTS[self.layout]
        storage = Storage(
            format=layout.format,
            axes="DHW",
            chunks=_cube(self.chunk) if self.chunk else None,
            shards=_cube(self._shard(self.chunk)) if self.chunk and layout.is_sharded else None,
            codec=layout.codec,
        )
        dtype = np.dtype(self.dtype).str
        return DatasetPlan((1, *(self.size,) * 3), dtype, storage, Contents(KINDS[self.dtype]))

    def _shard(self, chunk: int) -> int:
        return min(max(_SHARD, 2 * chunk), self.size // chunk * chunk)

    @property
    def volume(self) -> Volume:
        """What libraries other than voxload must know of it."""
        plan = self.plan
        storage = plan.storage
        return Volume(
            path=str(sample_path(plan, self.place.absolute(), 0)),
            dataset=storage.format.dataset,
            shape=plan.stored_shape,
            axes=storage.axes,
            dtype=plan.dtype,
            format=str(storage.format),
            chunks=storage.order.to_stored(storage.chunks) if storage.chunks else (),
        )

    @property
    def location(self) -> Location:
        """Where voxload finds it."""
        volume = self.volume
        return Location(volume.path, volume.dataset)

    def write(self) -> None:
        """Write it where it is not there yet."""
        generate(self.place, self.plan)

    def copy(self, number: int) -> Volume:
        """Return a copy of its one file, which is made where it is not there yet."""
        volume = self.volume
        path = Path(volume.path).with_suffix(f".copy{number}")
        if not path.exists():
            with replacing(path) as unfinished:
                shutil.copyfile(volume.path, unfinished)
        return replace(volume, path=str(path))

    def files(self) -> tuple[Path, ...]:
        """Return every file that voxels are read from, copies included."""
        path = Path(self.volume.path)
        if path.is_dir():
            return tuple(sorted(each for each in path.rglob("*") if each.is_file()))
        return tuple(sorted(path.parent.glob(f"{path.stem}.*")))

    def stored_bytes(self) -> int:
        """Return the bytes of its files, without copies."""
        return sum(path.stat().st_size for path in self.files() if not path.suffix.startswith(".copy"))

    def voxels(self, box: Box) -> Field:
        """Return what it holds in a box, ``(1, *box.shape)``; no file is read."""
        return voxels(self.dtype, box)


def _cube(extent: int) -> Extents:
    return (1, extent, extent, extent)


def counts(layout: str, folder: Path, size: int, *, chunk: int) -> Sample:
    """Return int16 counts, `size` along each axis; they are written into `folder` where they are not there yet."""
    sample = Sample(folder, layout, "int16", size, chunk)
    sample.write()
    return sample


def voxels(dtype: str, box: Box, *, number: int = 0) -> Field:
    """Return what a sample of a number holds in a box, ``(1, *box.shape)``."""
    found = np.empty((1, *box.shape), dtype)
    Contents(KINDS[dtype]).values(found.dtype).fill(box, found, sample=number)
    return found


def buffer_like(field: Field) -> Field:
    """Return a touched array of the same type and extents that begins with a line of the caches.

    Allocators of tensors give such; numpy's own begin at any multiple of 16 bytes, which costs whoever copies lines.
    """
    memory = np.zeros(field.nbytes + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    found: Field = memory[start : start + field.nbytes].view(field.dtype).reshape(field.shape)
    return found
