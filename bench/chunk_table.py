"""Claim: a sidecar gives a chunk table back in a fraction of the time that the file's own index takes.

Tables of several sizes are read from the index (``H5Dchunk_iter``), saved, and loaded from the sidecar, in turns; the
medians are printed in milliseconds. Tables below voxload's limit are measured too: they show why the limit is where it
is. The exit status is 1 when a sidecar gives another table than the index.

    python bench/chunk_table.py [--rounds 5] [--json]
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import finish, parser
from voxload.benchmark.measure.turns import timed
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.tablecache import MIN_CHUNKS, Sidecar
from voxload.readers.storage.stamp import Stamp

SIDES = (8, 12, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Row:
    """The table of one file."""

    chunks: int
    layout: str
    """Earliest or latest version of HDF5's format."""
    index_ms: float
    """Median, as those below."""
    save_ms: float
    load_ms: float
    is_equal: bool
    """Whether the sidecar gives the table of the index."""


def measure(path: Path, side: int, layout: str, rounds: int) -> Row:
    """Write a file of side^3 chunks and time its table."""
    with h5py.File(path, "w", libver=layout) as file:
        file.create_dataset("x", data=np.ones((2 * side,) * 3, "u1"), chunks=(2, 2, 2))
    stamp = Stamp.of(str(path))
    with h5py.File(path) as file:
        dataset = file["x"]
        table = ChunkTable.read(dataset)
        sidecar = Sidecar(dataset, stamp, path.parent / "tables")
        sidecar.save(table)
        calls = {
            "index": lambda: ChunkTable.read(dataset),
            "save": lambda: sidecar.save(table),
            "load": sidecar.load,
        }
        turns = timed(calls, rounds)
        found = sidecar.load()
    path.unlink()
    is_equal = found is not None and np.array_equal(found.offsets, table.offsets)
    index, save, load = (1e3 * turns.median(name) for name in calls)
    return Row(side**3, layout, index, save, load, is_equal)


def main() -> int:
    """Print one line a table."""
    words = parser(__doc__, rounds=5).parse_args()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "x.h5"
        rows = [measure(path, side, layout, words.rounds) for side in SIDES for layout in ("earliest", "latest")]
    print(f"limit: {MIN_CHUNKS} chunks", file=sys.stderr)
    return finish(words, rows, lambda row: row.is_equal)


if __name__ == "__main__":
    sys.exit(main())
