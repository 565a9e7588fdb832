"""Looping: SOURCE RESULT CHUNK SHARDS; zarr-python fed with slabs of planes, one for each row of shards or chunks.

SHARDS are extents d,h,w, or empty for chunks in files of their own. zarr-python encodes in a thread for each core, and
blosc in one thread each, which is faster than two of its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import h5py
import numcodecs.blosc
import zarr

from bench.converting.meter import metered
from bench.converting.turns.flushing import flush
from voxload.convert.storage.compression import Compression, ZarrEncoder


def main() -> None:
    """Write (C, D, H, W) from (D, H, W, C)."""
    source, result, chunk, shards = sys.argv[1:]
    extents = [int(extent) for extent in shards.split(",")] if shards else [int(chunk)] * 3
    numcodecs.blosc.use_threads = False
    cores = len(os.sched_getaffinity(0))
    with metered(), zarr.config.set({"threading.max_workers": cores, "async.concurrency": 4 * cores}):
        with h5py.File(next(Path(source).iterdir()), "r") as file:
            cube = file["full"]
            depth, height, width, channels = cube.shape
            volume = zarr.create_array(
                result,
                shape=(channels, depth, height, width),
                chunks=(channels, *[int(chunk)] * 3),
                shards=(channels, *extents) if shards else None,
                dtype=cube.dtype,
                compressors=ZarrEncoder(Compression.LZ4, cube.dtype).codecs,
            )
            for first in range(0, depth, extents[0]):
                planes = cube[first : first + extents[0]]
                volume[:, first : first + extents[0]] = planes.transpose(3, 0, 1, 2)
        flush(Path(result))


if __name__ == "__main__":
    main()
