"""ConvertOptions: what a conversion is asked to do; ConvertReport: what it did; Progress: what it is doing."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from voxload.convert.sources.hints import Headerless
from voxload.errors import UsageError

DEFAULT_MEMORY = 512 * 2**20
"""Bytes of memory a conversion may take unless told otherwise."""


class StoredFormat(enum.StrEnum):
    """How samples are stored."""

    ZARR = "zarr"
    """Zarr v3, one group a sample, sharded."""
    HDF5 = "hdf5"
    """HDF5, one file a sample, chunked."""

    @property
    def suffix(self) -> str:
        """Suffix of a sample's file or folder."""
        return ".zarr" if self is StoredFormat.ZARR else ".h5"


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Choices of a conversion; the defaults suit a raw universe."""

    format: StoredFormat = StoredFormat.ZARR
    """How samples are stored."""
    headerless: Headerless | None = None
    """Shape, type and order of files without a header."""
    axes: str | None = None
    """Order of the axes in the source, where the file does not say."""
    chunks: tuple[int, int, int] | None = None
    """Chunk extents (d, h, w); None to choose them by the cube's extents."""
    max_memory: int = DEFAULT_MEMORY
    """Bytes of memory that the whole conversion may take, interpreter and libraries included."""
    checksums: bool = False
    """Whether the catalogue gets the checksum of every stored chunk, of samples that were complete before too."""

    def __post_init__(self) -> None:
        if self.chunks is not None and min(self.chunks) < 1:
            raise UsageError("--chunks", found=str(self.chunks), expected="three extents of 1 or more, d,h,w")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a conversion is; counts voxels as bytes, uncompressed."""

    sample: str
    """The sample that is being converted."""
    bytes_done: int
    """Bytes converted so far, over all samples, those of an interrupted run included."""
    bytes_total: int
    """Bytes to convert, over all samples."""


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What a conversion did."""

    converted: tuple[str, ...]
    """Samples that this run completed."""
    skipped: tuple[str, ...]
    """Samples that were complete before."""
    ignored: tuple[str, ...]
    """Files under the source folder that are no raw cubes."""
    bytes_read: int
    """Bytes of voxels read from the sources."""
    bytes_written: int
    """Bytes of the converted volumes as stored."""
    bytes_resumed: int
    """Bytes of voxels that an interrupted run had converted already."""
    seconds: float
    """Time the run took."""
    catalog: Path
    """The catalogue."""
    summed: int = 0
    """Volumes of the catalogue whose chunks have checksums."""
