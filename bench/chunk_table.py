"""Claim: a sidecar gives a chunk table back in a fraction of the time that the file's own index takes.

Tables of several sizes are read from the index (``H5Dchunk_iter``), saved, and loaded from the sidecar; the medians
are printed in milliseconds. Tables below voxload's limit are measured too: they show why the limit is where it is.

    python bench/chunk_table.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import h5py
import numpy as np

from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.tablecache import MIN_CHUNKS, Sidecar
from voxload.readers.storage.stamp import Stamp

SIDES = (8, 12, 16, 32, 64)
ROUNDS = 5


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median time of a call."""
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return 1e3 * statistics.median(found)


def main() -> None:
    """Print one line a table."""
    print(f"limit: {MIN_CHUNKS} chunks")
    print(f"{'chunks':>8} {'layout':>8} {'index':>9} {'save':>9} {'load':>9}   ms")
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            for layout in ("earliest", "latest"):
                path = Path(folder) / f"{side}-{layout}.h5"
                with h5py.File(path, "w", libver=layout) as file:
                    extent = 2 * side
                    shape, chunks = (extent,) * 3, (2, 2, 2)
                    file.create_dataset("x", data=np.ones(shape, "u1"), chunks=chunks)
                stamp = Stamp.of(str(path))
                with h5py.File(path) as file:
                    dataset = file["x"]
                    index = milliseconds(partial(ChunkTable.read, dataset))
                    table = ChunkTable.read(dataset)
                    sidecar = Sidecar(dataset, stamp, Path(folder) / "tables")
                    save = milliseconds(partial(sidecar.save, table))
                    load = milliseconds(sidecar.load)
                    found = sidecar.load()
                if found is None or not np.array_equal(found.offsets, table.offsets):
                    raise SystemExit("the sidecar gave another table")
                print(f"{side**3:>8} {layout:>8} {index:>9.2f} {save:>9.2f} {load:>9.2f}")
                path.unlink()


if __name__ == "__main__":
    main()
