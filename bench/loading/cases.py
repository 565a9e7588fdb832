"""Cases: what is loaded."""

from __future__ import annotations

from dataclasses import dataclass

CHANNELS = 4
CHUNK = 64
"""Extent of a chunk in voxels, or the sample's where that is less."""
HDF5, ZARR, SHARDED, NPY = "hdf5", "zarr", "sharded", "npy"


@dataclass(frozen=True, slots=True)
class Case:
    """A data set, and the part of each sample that is wanted."""

    name: str
    storage: str
    """One of HDF5, ZARR, SHARDED, NPY."""
    count: int
    """Samples."""
    size: int
    """Voxels along each axis."""
    spatial: tuple[int, int, int]
    """Blocks of a sample; the last one is loaded."""
    batch: int
    """Samples of a batch."""
    epochs: int
    """Epochs that are timed."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return the extents (C, D, H, W) of a sample, int16."""
        return (CHANNELS, self.size, self.size, self.size)

    @property
    def block(self) -> tuple[slice, slice, slice, slice]:
        """Return the part that is loaded: that of the last rank."""
        extents = [self.size // blocks for blocks in self.spatial]
        starts = [self.size - extent for extent in extents]
        d, h, w = (slice(start, start + extent) for start, extent in zip(starts, extents, strict=True))
        return (slice(0, CHANNELS), d, h, w)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        blocks = self.spatial[0] * self.spatial[1] * self.spatial[2]
        return CHANNELS * self.size**3 * 2 // blocks

    @property
    def chunk(self) -> int:
        """Extent of a chunk in voxels."""
        return min(CHUNK, self.size)

    @property
    def title(self) -> str:
        """What tables say of it."""
        d, h, w = self.spatial
        return (
            f"{self.name}: {self.count} samples of {CHANNELS} x {self.size}^3 int16, a block of ({d}, {h}, {w}), "
            f"batches of {self.batch}, {self.epochs} epochs"
        )


def all_cases(size: int, count: int) -> dict[str, Case]:
    """Return all cases by name, for large samples of a size, so many of each; small ones are a fourth of it."""
    octant, whole = (2, 2, 2), (1, 1, 1)
    small = size // 4
    made = [
        Case("hdf5-gzip", HDF5, count, size, octant, 1, 4),
        Case("hdf5-gzip-small", HDF5, 8 * count, small, whole, 4, 4),
        Case("zarr-zstd", ZARR, count, size, octant, 1, 4),
        Case("zarr-sharded-zstd", SHARDED, count, size, octant, 1, 4),
        Case("npy", NPY, count // 2, size, octant, 1, 8),
    ]
    return {case.name: case for case in made}
