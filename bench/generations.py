"""Claim: to learn whether a block was written anew takes a small part of the time that reading it takes.

A block of a thousand chunks, each a file of its own, is read, and its generation is taken: what a disk tier's names are
made of. The best of several rounds is printed in milliseconds, with a warm page cache; from a cold one reading takes
longer.

    python bench/generations.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.generation import block_generation

COUNT, WIDTH = 10, 32
"""Chunks along each axis, and voxels of a chunk."""
ROUNDS = 7


def milliseconds(call: Callable[[], object]) -> float:
    """Return the best time of a call."""
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return 1e3 * min(found)


def main() -> None:
    """Print one line a codec."""
    shape = (COUNT * WIDTH,) * 3
    voxels = np.random.default_rng(0).integers(0, 900, shape).astype("<i2")
    print(f"{COUNT**3} chunks of {WIDTH}^3 voxels")
    print(f"{'codec':>8} {'read':>9} {'generation':>11}   ms")
    with tempfile.TemporaryDirectory() as folder:
        for name, codec in (("none", None), ("zstd", ZstdCodec())):
            path = Path(folder) / name
            zarr.create_array(
                path, data=voxels, chunks=(WIDTH,) * 3, compressors=codec, dimension_names=("d", "h", "w")
            )
            out = np.empty((1, *shape), "<i2")
            whole = Box.whole(shape)
            with closing(open_reader(Location(str(path)))) as reader:
                read = milliseconds(partial(reader.read_into, whole, out))
                asked = milliseconds(partial(block_generation, reader, whole, boundary="zero"))
            print(f"{name:>8} {read:>9.1f} {asked:>11.1f}")


if __name__ == "__main__":
    main()
