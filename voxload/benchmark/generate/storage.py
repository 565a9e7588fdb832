"""Storage: in which format, cut how and compressed how generated samples are stored."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numcodecs
import numpy as np
from numcodecs.abc import Codec as Coder

from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Volume

NONE = "none"
_LEVELS: dict[str, range] = {
    NONE: range(0),
    "gzip": range(10),
    "shuffle-gzip": range(10),
    "zstd": range(1, 23),
    "shuffle-zstd": range(1, 23),
    "lz4": range(0),
    "blosc-lz4": range(10),
    "blosc-zstd": range(10),
}
"""Levels that a codec takes; none where it has none."""
_DEFAULTS = {"gzip": 1, "shuffle-gzip": 1, "zstd": 3, "shuffle-zstd": 3, "blosc-lz4": 5, "blosc-zstd": 5}
_SHUFFLE_PREFIX = "shuffle-"
_BLOSC_PREFIX = "blosc-"

CODECS = tuple(_LEVELS)
"""Names of all codecs. ``shuffle-`` ones order bytes by significance first, which the ``blosc-`` ones do themselves."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec with its level."""

    name: str = NONE
    """One of `CODECS`."""
    level: int | None = None
    """Effort; None for the codec's usual one. See `effort`."""

    def __post_init__(self) -> None:
        if self.name not in CODECS:
            raise UsageError("codec", found=repr(self.name), expected=f"one of {', '.join(CODECS)}")
        levels = _LEVELS[self.name]
        if self.level is not None and self.level not in levels:
            expected = f"{levels.start} to {levels.stop - 1}" if levels else "no level"
            raise UsageError(f"level of codec {self.name}", found=str(self.level), expected=expected)

    @property
    def effort(self) -> int:
        """The level that is used; 0 where the codec has none."""
        return _DEFAULTS.get(self.name, 0) if self.level is None else self.level

    @property
    def is_none(self) -> bool:
        """Whether voxels are stored as they are."""
        return self.name == NONE

    @property
    def is_shuffled(self) -> bool:
        """Whether bytes are ordered by significance in a step of their own."""
        return self.name.startswith(_SHUFFLE_PREFIX)

    @property
    def is_blosc(self) -> bool:
        """Whether blosc does it, which then shuffles: bits of integers, bytes of floats."""
        return self.name.startswith(_BLOSC_PREFIX)

    @property
    def base(self) -> str:
        """Name of the compressor alone, such as ``gzip`` or ``lz4``."""
        return self.name.removeprefix(_SHUFFLE_PREFIX).removeprefix(_BLOSC_PREFIX)

    def coder(self, dtype: np.dtype[Any]) -> Coder | None:
        """Return numcodecs' compressor without a shuffle before it; None for the codec ``none``."""
        if self.is_none:
            return None
        if self.is_blosc:
            shuffle = numcodecs.Blosc.SHUFFLE if dtype.kind == "f" else numcodecs.Blosc.BITSHUFFLE
            return numcodecs.Blosc(cname=self.base, clevel=self.effort, shuffle=shuffle)
        if self.base == "gzip":
            return numcodecs.GZip(level=self.effort)
        return numcodecs.LZ4() if self.base == "lz4" else numcodecs.Zstd(level=self.effort)

    def stored_size(self, chunk: Volume) -> int:
        """Compress a chunk and return its bytes, those of a file's own headers left out."""
        coder, content = self.coder(chunk.dtype), np.ascontiguousarray(chunk)
        if coder is None:
            return content.nbytes
        if self.is_shuffled:
            content = numcodecs.Shuffle(elementsize=chunk.itemsize).encode(content)
        return len(coder.encode(content))


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
