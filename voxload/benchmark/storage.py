"""Storage: in which format, cut how and compressed how generated samples are stored; pure."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from voxload.benchmark.codec import Codec
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Volume

Extents = tuple[int, int, int, int]
"""Voxels along (C, D, H, W)."""
WriteBlock = Callable[[Box, Volume], None]
"""Writes all channels of a spatial box of whole chunks and shards; the array is (C, *box.shape), any strides."""


class StoreFormat(enum.StrEnum):
    """Formats that are generated."""

    HDF5 = "hdf5"
    """One file a sample with one dataset, in chunks or contiguous."""
    ZARR2 = "zarr2"
    """One array of Zarr format 2 a sample, one file a chunk."""
    ZARR3 = "zarr3"
    """One array of Zarr format 3 a sample, one file a chunk or a shard."""
    NPY = "npy"
    """One numpy file a sample."""
    RAW = "raw"
    """One file a sample that is voxels and nothing else."""

    @property
    def suffix(self) -> str:
        """Suffix of a sample's file or folder."""
        return _SUFFIXES[self]

    @property
    def dataset(self) -> str:
        """Name of the volume inside the file; empty where the file, or folder, is the array."""
        return "volume" if self is StoreFormat.HDF5 else ""

    @property
    def codecs(self) -> tuple[str, ...]:
        """Codecs that it can store."""
        return _CODECS[self]

    @property
    def is_chunked(self) -> bool:
        """Whether it has chunks at all."""
        return self not in (StoreFormat.NPY, StoreFormat.RAW)


_SUFFIXES = {
    StoreFormat.HDF5: ".h5",
    StoreFormat.ZARR2: ".zarr",
    StoreFormat.ZARR3: ".zarr",
    StoreFormat.NPY: ".npy",
    StoreFormat.RAW: ".raw",
}
_BLOSC = ("blosc-lz4", "blosc-zstd")
_CODECS = {
    StoreFormat.HDF5: ("none", "gzip", "shuffle-gzip", "zstd", "shuffle-zstd", "lz4", *_BLOSC),
    StoreFormat.ZARR2: ("none", "gzip", "zstd", "lz4", *_BLOSC),
    StoreFormat.ZARR3: ("none", "gzip", "zstd", *_BLOSC),
    StoreFormat.NPY: ("none",),
    StoreFormat.RAW: ("none",),
}
_LARGEST_CHUNK_BYTES = 2**31 - 1
"""Limit of blosc, and below HDF5's own of 4 GiB."""


@dataclass(frozen=True, slots=True)
class Storage:
    """How every sample of a data set is stored; raises UsageError where a format cannot do it."""

    format: StoreFormat
    """Storage format."""
    axes: str = "CDHW"
    """Order of the axes as stored, slowest first; without C where samples have one channel."""
    chunks: Extents | None = None
    """Extents of a chunk; None for contiguous storage, which Zarr has not."""
    shards: Extents | None = None
    """Extents of a shard, whole chunks; None where chunks have no shards."""
    codec: Codec = field(default_factory=Codec)
    """How chunks are compressed."""

    def __post_init__(self) -> None:
        AxisOrder(self.axes)
        name = f"format {self.format}"
        if self.codec.name not in self.format.codecs:
            raise UsageError(name, found=f"codec {self.codec.name}", expected=f"one of {', '.join(self.format.codecs)}")
        if self.chunks is not None and not self.format.is_chunked:
            raise UsageError(name, found=f"chunks {self.chunks}", expected="none: its files are contiguous")
        for part, extents in (("chunks", self.chunks), ("shards", self.shards)):
            if extents is not None and min(extents) < 1:
                raise UsageError(part, found=str(extents), expected="extents of 1 or more")
        if self.chunks is None and self.format in (StoreFormat.ZARR2, StoreFormat.ZARR3):
            raise UsageError(name, found="no chunks", expected="extents of a chunk, which Zarr always has")
        if self.chunks is None and not self.codec.is_none:
            raise UsageError(
                f"codec {self.codec.name}", found="contiguous storage", expected="chunks, which codecs work on"
            )
        self._check_shards()

    def _check_shards(self) -> None:
        if self.shards is None:
            return
        if self.format is not StoreFormat.ZARR3 or self.chunks is None:
            raise UsageError(
                f"format {self.format}", found=f"shards {self.shards}", expected="none: only zarr3 has them"
            )
        if any(shard % chunk for shard, chunk in zip(self.shards, self.chunks, strict=True)):
            raise UsageError("shards", found=str(self.shards), expected=f"whole chunks of {self.chunks}")

    @property
    def order(self) -> AxisOrder:
        """The axes as stored."""
        return AxisOrder(self.axes)

    @property
    def unit(self) -> Extents | None:
        """Extents that must be written at once: a shard or a chunk; None where storage is contiguous."""
        return self.shards or self.chunks

    def check(self, shape: Extents, itemsize: int) -> None:
        """Refuse samples of a shape that cannot be stored so.

        Raises UsageError when chunks are larger than the sample or than a codec takes, and when channels have no axis.
        """
        if not self.order.has_channels and shape[0] != 1:
            raise UsageError(f"axes {self.axes}", found=f"{shape[0]} channels", expected="one, or an axis C")
        if self.chunks is not None and any(part > whole for part, whole in zip(self.chunks, shape, strict=True)):
            raise UsageError("chunks", found=str(self.chunks), expected=f"extents up to the sample's, {shape}")
        nbytes = itemsize * prod(self.chunks or ())
        if nbytes > _LARGEST_CHUNK_BYTES:
            raise UsageError(
                "chunks", found=f"{self.chunks}, {nbytes} bytes each", expected=f"at most {_LARGEST_CHUNK_BYTES}"
            )
