"""Samples: one field in one storage format."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import zarr
from zarr.codecs import BloscCodec, GzipCodec

from bench.reading.fields import Field

DATASET = "x"
"""Name of the dataset in an HDF5 file."""
TWINS = 2
"""Copies of an HDF5 file: libhdf5 shares one chunk cache among all that open one file in one process, so that
one contender would read what another one has decoded."""
SHARD = 256
"""Extent of a shard in voxels, or two chunks where that is more."""
GZIP_LEVEL = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """How a field is stored."""

    name: str
    """Name on the command line and in tables."""
    family: str
    """``hdf5``, ``zarr`` or ``npy``: what can read it."""
    is_chunked: bool
    """Whether the chunk extent matters."""
    is_compressed: bool
    """Whether reading it needs a decoder."""
    write: Callable[[Path, Field, int], None]
    """Writes (path, field, chunk extent)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One stored field."""

    layout: Layout
    """How it is stored."""
    path: Path
    """File or folder."""
    dtype: str
    """Type of its voxels."""
    size: int
    """Extent along each axis, in voxels."""
    chunk: int | None
    """Extent of a chunk in voxels; None when storage is contiguous."""

    @property
    def title(self) -> str:
        """What tables call it."""
        chunk = f", chunks of {self.chunk}^3" if self.chunk else ""
        return f"{self.layout.name}, {self.dtype} {self.size}^3{chunk}"

    def files(self) -> tuple[Path, ...]:
        """Return every file that it consists of, and their copies."""
        if self.path.is_file():
            return (self.path, *(path for path in self.twins() if path.exists()))
        return tuple(sorted(path for path in self.path.rglob("*") if path.is_file()))

    def twins(self) -> tuple[Path, ...]:
        """Return where the copies of its file lie."""
        return tuple(self.path.with_suffix(f".twin{number}") for number in range(TWINS))

    def stored_bytes(self) -> int:
        """Return the bytes of its files, without copies."""
        return sum(path.stat().st_size for path in self.files() if path not in self.twins())

    def remove(self) -> None:
        """Delete its files."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
            return
        for path in self.files():
            path.unlink()


def store(layout: Layout, source: tuple[Path, Field], *, chunk: int) -> Sample:
    """Return the sample of a field next to the field's own file; it is written when it is not there."""
    path, field = source
    size, dtype = field.shape[0], str(field.dtype)
    extent = chunk if layout.is_chunked else None
    if layout.family == "npy":
        return Sample(layout, path, dtype, size, extent)
    place = path.parent / f"{layout.name}-{dtype}-{size}-{extent or 'whole'}.{layout.family}"
    if not place.exists():
        unfinished = place.with_name(f"part-{place.name}")
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        layout.write(unfinished, field, chunk)
        unfinished.replace(place)
    sample = Sample(layout, place, dtype, size, extent)
    if layout.family == "hdf5":
        for twin in sample.twins():
            if not twin.exists():
                shutil.copyfile(place, twin)
    for file in sample.files():
        _flush(file)
    return sample


def _flush(path: Path) -> None:
    """Write a file back to its device: the system does not drop dirty pages."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hdf5(*, is_chunked: bool = True, **filters: Any) -> Callable[[Path, Field, int], None]:
    def write(path: Path, field: Field, chunk: int) -> None:
        chunks = (chunk,) * 3 if is_chunked else None
        with h5py.File(path, "w") as file:
            file.create_dataset(DATASET, data=field, chunks=chunks, **filters)

    return write


def _zarr(*, codec: Any = None, is_sharded: bool = False) -> Callable[[Path, Field, int], None]:
    def write(path: Path, field: Field, chunk: int) -> None:
        shards = (min(max(SHARD, 2 * chunk), field.shape[0]),) * 3 if is_sharded else None
        array = zarr.create_array(
            path,
            shape=field.shape,
            dtype=field.dtype,
            chunks=(chunk,) * 3,
            shards=shards,
            compressors=codec,
            dimension_names=("d", "h", "w"),
        )
        array[...] = field

    return write


def _nothing(path: Path, field: Field, chunk: int) -> None:
    """Write nothing: the field's own file is the sample."""


_BLOSC = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
_BLOSC_FILTER = hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE)

LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("hdf5-contiguous", "hdf5", False, False, _hdf5(is_chunked=False)),  # noqa: FBT003 - a table of fields
        Layout("hdf5-chunked", "hdf5", True, False, _hdf5()),  # noqa: FBT003 - as above
        Layout("hdf5-gzip", "hdf5", True, True, _hdf5(compression="gzip", compression_opts=GZIP_LEVEL, shuffle=True)),  # noqa: FBT003 - as above
        Layout("hdf5-zstd", "hdf5", True, True, _hdf5(compression=hdf5plugin.Zstd(clevel=3), shuffle=True)),  # noqa: FBT003 - as above
        Layout("hdf5-blosc-lz4", "hdf5", True, True, _hdf5(compression=_BLOSC_FILTER)),  # noqa: FBT003 - as above
        Layout("zarr-raw", "zarr", True, False, _zarr()),  # noqa: FBT003 - as above
        Layout("zarr-blosc-lz4", "zarr", True, True, _zarr(codec=_BLOSC)),  # noqa: FBT003 - as above
        Layout("zarr-gzip", "zarr", True, True, _zarr(codec=GzipCodec(level=GZIP_LEVEL))),  # noqa: FBT003 - as above
        Layout("zarr-sharded-raw", "zarr", True, False, _zarr(is_sharded=True)),  # noqa: FBT003 - as above
        Layout("zarr-sharded-blosc", "zarr", True, True, _zarr(codec=_BLOSC, is_sharded=True)),  # noqa: FBT003 - as above
        Layout("npy", "npy", False, False, _nothing),  # noqa: FBT003 - as above
    )
}
