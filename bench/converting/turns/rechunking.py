"""Rechunking: SOURCE RESULT CHUNK MEMORY; the rechunker package, from planes of dask into chunks, axes as they are.

Needs rechunker, dask and a zarr before 3: rechunker 0.5 calls functions that zarr-python 3 no longer has.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import dask
import dask.array
import h5py
import numcodecs

from bench.converting.meter import metered
from bench.converting.turns.flushing import flush


def main() -> None:
    """Write chunks (d, h, w, C), each a file: zarr 2 knows no shards."""
    source, result, chunk, memory = sys.argv[1:]
    extent = int(chunk)
    numcodecs.blosc.use_threads = False
    codec = numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.BITSHUFFLE)
    rechunk: Any = importlib.import_module("rechunker").rechunk
    from_array: Any = dask.array.from_array
    with metered():
        with h5py.File(next(Path(source).iterdir()), "r") as file:
            cube = file["full"]
            planes = from_array(cube, chunks=(extent, *cube.shape[1:]))
            plan = rechunk(
                planes,
                target_chunks=(extent, extent, extent, cube.shape[3]),
                max_mem=int(memory) // 2,
                target_store=f"{result}/full.zarr",
                temp_store=f"{result}/between.zarr",
                target_options={"compressor": codec},
            )
            with dask.config.set(scheduler="threads", num_workers=len(os.sched_getaffinity(0))):
                plan.execute()
        flush(Path(result))


if __name__ == "__main__":
    main()
