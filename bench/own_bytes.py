"""Claim: each rank of a (2, 2, 2) grid reads an eighth of a sample's stored bytes, plus chunk rounding.

What is read beyond the plan is metadata: the table of all chunks in HDF5, a few small documents in Zarr.

Writes one sample of compressible counts, ``4 x size^3`` int16, as gzip-chunked HDF5 and as sharded Zarr, into a
temporary folder. Then one process per rank reads its block, and this script, from outside, takes the bytes that
the process asked of the system: ``rchar`` of /proc/<pid>/io before and after the read, so page cache or not.

    python bench/own_bytes.py [--size 256] [--ranks 0 1 2 3 4 5 6 7] [--json]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.children import started
from bench.harness.script import finish, parser
from voxload.geometry import Box
from voxload.grid import ProcessGrid
from voxload.readers import Location, Reader, open_reader

SPATIAL = (2, 2, 2)
CHANNELS = 4
CHUNK = 32
"""Extent of a chunk; a shard holds 2 x 2 x 2 of them for each channel."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one rank read."""

    store: str
    """Storage format."""
    rank: int
    """Rank in the grid."""
    stored_bytes: int
    """Bytes of the whole volume in storage."""
    planned_bytes: int
    """Bytes that the reader says the block costs."""
    read_bytes: int
    """Bytes that the system counted while the rank opened the volume and read its block."""

    @property
    def share(self) -> float:
        """Bytes read as a part of the stored bytes; 0.125 is the aim."""
        return self.read_bytes / self.stored_bytes


def counts(size: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Return (C, D, H, W) counts, few and small as in a simulated universe."""
    generator = np.random.default_rng(7)
    return generator.poisson(3.0, (CHANNELS, size, size, size)).astype(np.int16)


def write(folder: Path, size: int) -> dict[str, Location]:
    """Write the sample in both formats."""
    volume = counts(size)
    chunk = (1, CHUNK, CHUNK, CHUNK)
    with h5py.File(folder / "sample.h5", "w") as file:
        file.create_dataset("x", data=volume, chunks=chunk, compression="gzip", compression_opts=1, shuffle=True)
    group = zarr.open_group(folder / "sample.zarr", mode="w", zarr_format=3)
    array = group.create_array("x", shape=volume.shape, dtype=volume.dtype, chunks=chunk, shards=(1, *(2 * CHUNK,) * 3))
    array[...] = volume
    places = {"HDF5, gzip chunks": "sample.h5", "Zarr v3, shards": "sample.zarr"}
    return {name: Location(str(folder / place), "x", axes="CDHW") for name, place in places.items()}


def own_block(location: Location, rank: int) -> tuple[Reader, Box]:
    """Open the volume and return its reader and the block of `rank`."""
    reader = open_reader(location)
    return reader, ProcessGrid(SPATIAL, 8, rank).block(reader.describe().spatial)


def measure(name: str, location: Location, rank: int) -> Row:
    """Read one rank's block in a process of its own and count that process's bytes."""
    reader, box = own_block(location, rank)
    with closing(reader):
        planned, whole = reader.cost(box), reader.cost(reader.describe().whole)
    with started("bench.own_bytes:reading", location.path, rank) as child:
        before = child.figure("io", "rchar")
        child.ask()
        after = child.figure("io", "rchar")
    return Row(name, rank, whole.stored_bytes, planned.stored_bytes, after - before)


def reading(path: str, rank: int) -> Callable[[], None]:
    """Return what a training process does: it opens the volume and reads the block of `rank`.

    It has been done on a small sample before, so that no import is counted.
    """

    def read(location: Location, rank: int) -> None:
        reader, box = own_block(location, rank)
        with closing(reader):
            info = reader.describe()
            reader.read_into(box, np.empty((info.shape[0], *box.shape), info.native_dtype))

    with tempfile.TemporaryDirectory() as folder:
        for location in write(Path(folder), CHUNK).values():
            read(location, 0)
    return lambda: read(Location(path, "x", axes="CDHW"), rank)


def main() -> int:
    """Parse the command line and run."""
    options = parser(__doc__, size=256)
    options.add_argument("--ranks", type=int, nargs="+", default=list(range(8)), help="ranks to run (default all)")
    words = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        places = write(Path(folder), words.size)
        rows = [measure(name, place, rank) for name, place in places.items() for rank in words.ranks]
    return finish(words, rows)


if __name__ == "__main__":
    sys.exit(main())
