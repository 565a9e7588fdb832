"""Claim: each rank of a (2, 2, 2) grid reads an eighth of a sample's stored bytes, plus chunk rounding.

What is read beyond the plan is metadata: the table of all chunks in HDF5, a few small documents in Zarr.

Writes one sample of compressible counts, ``4 x size^3`` int16, as gzip-chunked HDF5 and as sharded Zarr, into a
temporary folder. Then one process per rank reads its block, and this script, from outside, takes the bytes that
the process asked of the system: ``rchar`` of /proc/<pid>/io before and after the read, so page cache or not.

    python bench/own_bytes.py [--size 256] [--ranks 0 1 2 3 4 5 6 7] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np
import zarr

from voxload.grid import ProcessGrid
from voxload.readers import Location, open_reader

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


def measure(name: str, location: Location, rank: int) -> Row:
    """Read one rank's block in a process of its own and count that process's bytes."""
    reader = open_reader(location)
    info = reader.describe()
    box = ProcessGrid(SPATIAL, 8, rank).block(info.spatial)
    planned, whole = reader.cost(box), reader.cost(info.whole)
    reader.close()
    command = [sys.executable, __file__, "--child", location.path, "--rank", str(rank)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        if child.stdin is None or child.stdout is None:
            raise SystemExit("no pipes to the child")
        expect(child.stdout, "warm")
        before = read_characters(child.pid)
        print("read", file=child.stdin, flush=True)
        expect(child.stdout, "done")
        after = read_characters(child.pid)
        child.stdin.close()
    return Row(name, rank, whole.stored_bytes, planned.stored_bytes, after - before)


def expect(stream: IO[str], word: str) -> None:
    """Wait for the child's next word."""
    line = stream.readline().strip()
    if line != word:
        raise SystemExit(f"the child said {line!r} and not {word!r}")


def read_characters(pid: int) -> int:
    """Return the bytes that a process has asked of read calls so far."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["rchar"])


def read_own_block(location: Location, rank: int) -> None:
    """Open the volume and read the block of `rank`: what a training process does."""
    reader = open_reader(location)
    info = reader.describe()
    box = ProcessGrid(SPATIAL, 8, rank).block(info.spatial)
    reader.read_into(box, np.empty((info.shape[0], *box.shape), info.native_dtype))
    reader.close()


def child(path: str, rank: int) -> None:
    """Warm up on a small sample, so that no import is counted, then read on command."""
    with tempfile.TemporaryDirectory() as folder:
        for location in write(Path(folder), CHUNK).values():
            read_own_block(location, 0)
    print("warm", flush=True)
    sys.stdin.readline()
    read_own_block(Location(path, "x", axes="CDHW"), rank)
    print("done", flush=True)
    sys.stdin.readline()


def show(rows: list[Row]) -> None:
    """Print the table."""
    print(f"{'store':<20} rank {'stored':>12} {'1/8':>12} {'planned':>12} {'read':>12} {'read/stored':>12}")
    for row in rows:
        figures = (row.stored_bytes, row.stored_bytes // 8, row.planned_bytes, row.read_bytes)
        print(f"{row.store:<20} {row.rank:>4} " + " ".join(f"{n:>12,}" for n in figures) + f" {row.share:>12.4f}")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256, help="voxels along each axis (default 256)")
    parser.add_argument("--ranks", type=int, nargs="+", default=list(range(8)), help="ranks to run (default all)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.child:
        child(words.child, words.rank)
        return
    with tempfile.TemporaryDirectory() as folder:
        places = write(Path(folder), words.size)
        rows = [measure(name, place, rank) for name, place in places.items() for rank in words.ranks]
    if words.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        show(rows)


if __name__ == "__main__":
    main()
