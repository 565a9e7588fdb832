"""Compression: how chunks are compressed, as Zarr and HDF5 call it, and the bytes of a chunk."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import crc32c
import imagecodecs
import numpy as np
from zarr.codecs import BloscCodec, BloscShuffle, Crc32cCodec, GzipCodec

from voxload.readers.protocol import Volume

_blosc: Callable[..., Any] = imagecodecs.blosc_encode
_zlib: Callable[..., Any] = imagecodecs.zlib_encode
_gzip: Callable[..., Any] = imagecodecs.gzip_encode
_fletcher32: Callable[..., int] = imagecodecs.h5checksum_fletcher32
_BLOSC_SHUFFLE = {"shuffle": 1, "bitshuffle": 2}
_LZ4_LEVEL, _ZSTD_LEVEL, _GZIP_LEVEL = 5, 1, 1


class Compression(enum.StrEnum):
    """How chunks are compressed."""

    AUTO = "auto"
    """By the type of the voxels and the ratio that is measured."""
    LZ4 = "lz4"
    """Blosc with lz4: decodes fastest. Zarr only: HDF5 needs a plugin for it."""
    ZSTD = "zstd"
    """Blosc with zstd: stores less, decodes at two thirds of the speed. Zarr only, as above."""
    GZIP = "gzip"
    """Every library reads it."""
    NONE = "none"
    """Not at all."""


Parts = tuple[bytes, bytes]
"""A chunk as it is stored: its compressed voxels, and the checksum behind. To join them would be to copy them."""


class Encoder(Protocol):
    """Compresses chunks; immutable, and safe to call from many threads at once."""

    def __call__(self, chunk: Volume) -> Parts:
        """Return a contiguous chunk as it is stored."""
        ...


@dataclass(frozen=True, slots=True)
class ZarrEncoder:
    """Chunks of a Zarr shard: compressed, and a CRC-32C behind, because blosc does not notice a flipped bit."""

    compression: Compression
    """How; not AUTO."""
    dtype: np.dtype[Any]
    """Type of the voxels, little-endian."""
    voxels: int = 8
    """Voxels of a chunk."""

    @property
    def _shuffle(self) -> str:
        """Bitshuffle for integers, whose high bits are mostly zero, and byte shuffle for floats.

        c-blosc shuffles the bits of eight elements at once, and leaves a block of another count as it is.
        """
        return "shuffle" if self.dtype.kind == "f" or self.voxels % 8 else "bitshuffle"

    @property
    def codecs(self) -> list[Any]:
        """The codecs as zarr-python knows them."""
        match self.compression:
            case Compression.LZ4 | Compression.ZSTD:
                return [
                    BloscCodec(
                        cname="lz4" if self.compression is Compression.LZ4 else "zstd",
                        clevel=_level(self.compression),
                        shuffle=BloscShuffle[self._shuffle],
                        typesize=self.dtype.itemsize,
                    ),
                    Crc32cCodec(),
                ]
            case Compression.GZIP:
                return [GzipCodec(level=_GZIP_LEVEL), Crc32cCodec()]
            case _:
                return [Crc32cCodec()]

    def __call__(self, chunk: Volume) -> Parts:
        """Return a contiguous chunk as it is stored."""
        data: bytes
        match self.compression:
            case Compression.LZ4 | Compression.ZSTD:
                # The element that is shuffled is the array's: blosc_encode takes no other size for it.
                flat = chunk.reshape(-1)
                data = _blosc(
                    flat.view(np.uint8) if flat.dtype.itemsize == 1 else flat,
                    level=_level(self.compression),
                    compressor=self.compression.value,
                    shuffle=_BLOSC_SHUFFLE[self._shuffle],
                    numthreads=1,
                )
            case Compression.GZIP:
                data = _gzip(chunk.reshape(-1).view(np.uint8), level=_GZIP_LEVEL)
            case _:
                data = chunk.tobytes()
        return data, crc32c.crc32c(data).to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class Hdf5Encoder:
    """Chunks of an HDF5 dataset: shuffled and deflated, or as they are, and a Fletcher-32 behind."""

    compression: Compression
    """GZIP or NONE."""
    dtype: np.dtype[Any]
    """Type of the voxels, little-endian."""

    @property
    def filters(self) -> dict[str, Any]:
        """The filters as h5py's create_dataset knows them."""
        deflate = {"shuffle": True, "compression": "gzip", "compression_opts": _GZIP_LEVEL}
        return {**(deflate if self.compression is Compression.GZIP else {}), "fletcher32": True}

    def __call__(self, chunk: Volume) -> Parts:
        """Return a contiguous chunk as it is stored. Source: HDF5 filters 2, 1 and 3, in the order of writing."""
        flat = chunk.reshape(-1).view(np.uint8)
        data: bytes | Any = flat
        if self.compression is Compression.GZIP:
            width = self.dtype.itemsize
            data = _zlib(np.ascontiguousarray(flat.reshape(-1, width).T), level=_GZIP_LEVEL)
        return bytes(data), _fletcher32(data).to_bytes(4, "little")


def _level(compression: Compression) -> int:
    return _LZ4_LEVEL if compression is Compression.LZ4 else _ZSTD_LEVEL
