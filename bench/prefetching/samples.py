"""Samples: volumes stored in chunks that no two blocks share, and where in their files the voxels are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import zarr

CHANNELS = 4
SPATIAL = (2, 1, 1)
"""Blocks of a sample."""
_CHUNKS = 2
"""Chunks of a block."""
FORMATS = ("zarr", "hdf5")


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of bytes that hold voxels, stored as they are used."""

    path: str
    """File, relative to the folder."""
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Length of the run."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Samples:
    """A data set in a folder."""

    folder: Path
    format: str
    """One of FORMATS."""
    count: int
    size: int
    """Voxels along each axis."""

    @property
    def names(self) -> tuple[str, ...]:
        """Files or hierarchies, relative to the folder, in the order of sample indices."""
        return tuple(self._name(f"{index:04}") for index in range(self.count))

    @property
    def warm_up(self) -> Path:
        """One more of the same kind, which is not part of the data set."""
        return self.folder / self._name("warm-up")

    @property
    def block_bytes(self) -> int:
        """Bytes of one rank's block."""
        return CHANNELS * self.size**3 * np.dtype(np.int16).itemsize // SPATIAL[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all voxels."""
        return self.count * SPATIAL[0] * self.block_bytes

    def write(self) -> None:
        """Store what is not there yet; the voxels are random, so that nothing on the way makes them fewer."""
        for number, path in enumerate([self.warm_up, *(self.folder / name for name in self.names)]):
            if not path.exists():
                shape = (CHANNELS, self.size, self.size, self.size)
                volume = np.random.default_rng(number).integers(0, 1 << 15, shape, np.int16)
                _write(path, volume, (CHANNELS, self.size // (SPATIAL[0] * _CHUNKS), self.size, self.size))

    def extents(self) -> list[Extent]:
        """Return where the voxels are."""
        return [extent for name in self.names for extent in self._extents(name)]

    def _extents(self, name: str) -> Iterator[Extent]:
        path = self.folder / name
        if path.is_dir():
            for chunk in sorted((path / "c").rglob("*")):
                if chunk.is_file():
                    yield Extent(str(chunk.relative_to(self.folder)), 0, chunk.stat().st_size)
            return
        with h5py.File(path) as file:
            dataset = file["x"].id
            for number in range(dataset.get_num_chunks()):
                info = dataset.get_chunk_info(number)
                yield Extent(name, info.byte_offset, info.byte_offset + info.size)

    def _name(self, stem: str) -> str:
        return f"{self.format}-{self.size}/{stem}.{'zarr' if self.format == 'zarr' else 'h5'}"


def _write(path: Path, volume: np.ndarray[tuple[int, ...], np.dtype[np.int16]], chunks: tuple[int, ...]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=volume, chunks=chunks)
        return
    array = zarr.create_array(
        str(path),
        shape=volume.shape,
        dtype=volume.dtype,
        chunks=chunks,
        compressors=None,
        dimension_names=("c", "d", "h", "w"),
    )
    array[...] = volume
